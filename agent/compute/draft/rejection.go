package draft

import (
	"time"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

// Rejection is a resource whose present bytes a client refused, or the check of the agent before
// they were sent. What the config has in its place is not in force; all else is.
type Rejection struct {
	Node node.Key
	Mesh string
	Name string // of the dataplane
	ID   ResourceID
	// Resource is as it was refused, Accepted as it was taken last, nil when it never was.
	Resource, Accepted *Resource
	// Older is another version of it that the client came with, whose bytes are not known, and has
	// been left; "" for none.
	Older string
	// Lacks says that the client has told what it came with, and this is not among it: it has nothing
	// in its place.
	Lacks  bool
	Reason string
	// Suspect says that the client rejected a response with it without naming a resource, and which it
	// is is being looked for.
	Suspect bool
	// Retry is when it is sent again without any change, since the reason may pass; zero for never.
	Retry time.Time
	Time  time.Time
	// By is api.HeldByProxy or api.HeldByCheck, Rule that of the check. Cause is the refused resource
	// that it needs and that alone is at fault; the zero value for none.
	By    string
	Rule  int
	Cause ResourceID
	// Since is the newest revision of the store that is known to be in force at the client without
	// this trouble, 0 for none. MadeAt is the one with which the refused bytes came up, or a later
	// one.
	Since, MadeAt uint64
	// Overtakes says that the client had accepted these bytes before, so that no revision with them is
	// in force.
	Overtakes bool
	// Blame is who shapes it, once Attributed is set, with the policies of the revision AttributedAt;
	// see [rollout.Proxies.Attribute].
	Blame        []api.Blame
	Attributed   bool
	AttributedAt uint64
}
