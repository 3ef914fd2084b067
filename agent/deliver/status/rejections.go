package status

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/base/plural"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/deliver/rollout"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// because lists the likely causes of a rejection as text, or returns "".
func because(blame []api.Blame) string {
	var owner []string
	for _, b := range api.Causes(blame) {
		w := resource.Key{Kind: b.Type, Mesh: b.Mesh, Name: b.Name}.String()
		if b.Field != "" {
			w += " (" + b.Field + ")"
		}
		owner = append(owner, w)
	}
	if len(owner) == 0 {
		return ""
	}
	return "; because of " + strings.Join(owner, ", ")
}

// maxProblemReason limits the client message in a problem, in bytes.
const maxProblemReason = 300

// Rejections returns problems for resources that connected clients reject or that the check
// withholds. A problem belongs to the policy that is the likely cause, else to the dataplane.
func (t *Tracker) Rejections() []api.Problem {
	if t.Progress == nil {
		return nil
	}
	type refusal struct {
		first   *draft.Rejection
		field   string
		proxies map[node.Key]bool
		others  map[draft.ResourceID]bool // except the first
	}
	of := map[[2]string]*refusal{} // by resource, and by origin of the rejection
	add := func(owner, field string, r *draft.Rejection) {
		p := of[[2]string{owner, r.By}]
		if p == nil {
			p = &refusal{first: r, field: field, proxies: map[node.Key]bool{}, others: map[draft.ResourceID]bool{}}
			of[[2]string{owner, r.By}] = p
		}
		if p.first.Cause != (draft.ResourceID{}) && r.Node == p.first.Node && r.ID == p.first.Cause {
			p.others[p.first.ID] = true
			p.first, p.field = r, field
		}
		p.proxies[r.Node] = true
		if r.ID != p.first.ID && r.Node == p.first.Node {
			p.others[r.ID] = true
		}
	}
	progress := t.Progress()
	for i := range progress {
		if progress[i].State == api.StateDisconnected {
			continue
		}
		for j := range progress[i].Rejected {
			r := &progress[i].Rejected[j]
			causes := r.Causes()
			for _, b := range causes {
				add(resource.Key{Kind: b.Type, Mesh: b.Mesh, Name: b.Name}.String(), b.Field, r)
			}
			if len(causes) == 0 {
				owner := resource.Key{Kind: kindDataplane, Mesh: r.Mesh, Name: r.Name}
				if ref, err := node.ParseRef(r.Node.ID); err == nil {
					owner = ref.Key()
				}
				add(owner.String(), "", r)
			}
		}
	}
	out := make([]api.Problem, 0, len(of))
	for key, p := range of {
		r := p.first
		var b strings.Builder
		verb, class := "rejected by ", api.ClassRejected
		if r.By == api.HeldByCheck {
			verb, class = "withheld from ", api.ClassWithheld
		}
		b.WriteString(verb + plural.Form(len(p.proxies), "", "%d proxies, such as ") + r.Node.ID)
		fmt.Fprintf(&b, ": %s %s: %s", r.ID.TypeURL[strings.LastIndexByte(r.ID.TypeURL, '.')+1:], r.ID.Name,
			oneLine(r.Reason))
		b.WriteString(api.RetrySaid(r.Retry, time.Now()))
		switch {
		case p.field != "":
			fmt.Fprintf(&b, "; see %s", p.field)
		case r.By != api.HeldByCheck && rollout.ReasonOfHost(r.Reason):
			b.WriteString("; the cause is on the host of the Envoy, not in a policy" + t.freePort(r))
		case !r.Attributed:
			b.WriteString("; the agent is determining the responsible policies")
		case len(r.Blame) == 0:
			b.WriteString("; no policy affects it, so the cause is this resource, its Mesh, or a service that it refers to")
		}
		if n := len(p.others); n > 0 {
			b.WriteString("; and " + plural.Count(n, "more resource") + " there")
		}
		switch {
		case r.Substituted():
			b.WriteString("; Envoy gets " + api.OmittedText(r.Without))
		case r.Accepted != nil:
			b.WriteString("; Envoy keeps the last accepted version of it")
		case r.Older != "":
			b.WriteString("; Envoy keeps the older version that it had when it connected")
		default:
			b.WriteString("; it is not in force")
		}
		out = append(out, api.Problem{Resource: key[0], Severity: api.SeverityError, Check: class, Reason: b.String(),
			Command: inspectCommand(r.Mesh, r.Name)})
	}
	slices.SortFunc(out, func(a, b api.Problem) int {
		return cmp.Or(cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Reason, b.Reason))
	})
	return out
}

// boundPort matches Envoy's message about a port that is in use.
var boundPort = regexp.MustCompile(`cannot bind '[^']*:(\d{1,5})': Address already in use`)

// freePort returns the remedy for a port in use, or "" for other reasons.
func (t *Tracker) freePort(r *draft.Rejection) string {
	m := boundPort.FindStringSubmatch(r.Reason)
	if m == nil {
		return ""
	}
	if n := t.streams(r.Node.ID); n > 1 {
		return fmt.Sprintf(": %d Envoys use the node id %s, and another one of them has the port: stop all but one, "+
			"or give each the node id of a separate Dataplane", n, r.Node.ID)
	}
	return fmt.Sprintf(
		`: find the process that listens there with "ss -lntp 'sport = :%s'" and stop it, or use another port`, m[1])
}

// streams returns the number of open streams of a node id. An Envoy has one.
func (t *Tracker) streams(id string) (n int) {
	if ref, err := node.ParseRef(id); err == nil && t.ProxiesOf != nil {
		for _, c := range t.ProxiesOf(ref) {
			n += c.Streams
		}
	}
	return n
}

// oneLine shortens the message of a client to one line.
func oneLine(s string) string {
	return clip.Text(strings.Join(strings.Fields(s), " "), maxProblemReason)
}
