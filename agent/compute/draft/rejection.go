package draft

import (
	"time"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

// Rejection is a resource that a client rejects or that the check withholds. Only the rest of the
// config is in force.
type Rejection struct {
	Node node.Key
	Mesh string
	Name string // of the dataplane
	ID   ResourceID
	// Resource is the rejected version, Accepted the version that was accepted last, nil for none.
	Resource, Accepted *Resource
	// Older is the version that the client had when it connected and still has, and whose bytes are
	// unknown; "" for none.
	Older string
	// Lacks is set if the client reported its resources when it connected, and this one is not
	// among them, so it has no version of it.
	Lacks  bool
	Reason string
	// Suspect is set if the client rejected a response with the resource without naming one, and
	// the search for the cause has not finished.
	Suspect bool
	// Retry is the time at which the unchanged resource is sent again, because the cause may be
	// temporary; zero for never.
	Retry time.Time
	Time  time.Time
	// By is api.HeldByProxy or api.HeldByCheck. Rule is the number of the rule of the check. Cause
	// is the rejected resource that causes this rejection; the zero value for none.
	By    string
	Rule  int
	Cause ResourceID
	// Since is the newest revision of the store that is known to be in force at the client without
	// this rejection, 0 for none. MadeAt is the revision that introduced the rejected bytes, or a
	// later one.
	Since, MadeAt uint64
	// Overtakes is set if the client had accepted these bytes before, so that no revision with them
	// is in force.
	Overtakes bool
	// Blame lists the policies that affect the resource as of the revision AttributedAt, if
	// Attributed is set; see [rollout.Proxies.Attribute].
	Blame        []api.Blame
	Attributed   bool
	AttributedAt uint64
}
