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
	Blame []api.Blame
	// Without lists the policies whose effect the config leaves out of the resource, because the
	// client rejected it with them; empty if the config has Resource. Instead is the form of the
	// config without them, nil for none. InsteadRejected is set if the client rejects Instead too.
	Without         []api.Omitted
	Instead         *Resource
	InsteadRejected bool
	// Deciding is set until the reconciler has decided whether policies are left out.
	Deciding     bool
	Attributed   bool
	AttributedAt uint64
}

// Substituted reports whether the client gets another form of the resource, without some policies.
func (r *Rejection) Substituted() bool { return len(r.Without) > 0 && !r.InsteadRejected }

// Causes returns the policies that are the likely causes: those that are left out, or else those of
// [api.Causes].
func (r *Rejection) Causes() []api.Blame {
	if !r.Substituted() {
		return api.Causes(r.Blame)
	}
	var out []api.Blame
	for _, o := range r.Without {
		b := api.Blame{Type: o.Type, Mesh: o.Mesh, Name: o.Name, Evidence: api.BlameShapes, Paths: []string{}}
		for _, x := range r.Blame {
			if x.Type == o.Type && x.Mesh == o.Mesh && x.Name == o.Name {
				b = x
			}
		}
		out = append(out, b)
	}
	return out
}
