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
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// because says in words who most likely made a client reject something; "" when nobody is known.
func because(blame []api.Blame) string {
	var who []string
	for _, b := range api.Causes(blame) {
		w := resource.Key{Kind: b.Type, Mesh: b.Mesh, Name: b.Name}.String()
		if b.Field != "" {
			w += " (" + b.Field + ")"
		}
		who = append(who, w)
	}
	if len(who) == 0 {
		return ""
	}
	return "; because of " + strings.Join(who, ", ")
}

// maxProblemReason bounds what a problem quotes of the message of a client, in bytes.
const maxProblemReason = 300

// Rejections tells what connected clients reject, and what the check withholds from them, as
// problems: of the policies that are the likely cause, else of the dataplanes.
func (t *Tracker) Rejections() []api.Problem {
	if t.Progress == nil {
		return nil
	}
	type refusal struct {
		first   *draft.Rejection
		field   string
		proxies map[node.Key]bool
		others  map[draft.ResourceID]bool // beside the first
	}
	of := map[[2]string]*refusal{} // by whom, and by who refuses
	add := func(who, field string, r *draft.Rejection) {
		p := of[[2]string{who, r.By}]
		if p == nil {
			p = &refusal{first: r, field: field, proxies: map[node.Key]bool{}, others: map[draft.ResourceID]bool{}}
			of[[2]string{who, r.By}] = p
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
			causes := api.Causes(r.Blame)
			for _, b := range causes {
				add(resource.Key{Kind: b.Type, Mesh: b.Mesh, Name: b.Name}.String(), b.Field, r)
			}
			if len(causes) == 0 {
				who := resource.Key{Kind: kindDataplane, Mesh: r.Mesh, Name: r.Name}
				if ref, err := node.ParseRef(r.Node.ID); err == nil {
					who = ref.Key()
				}
				add(who.String(), "", r)
			}
		}
	}
	out := make([]api.Problem, 0, len(of))
	for key, p := range of {
		r := p.first
		var b strings.Builder
		verb := "rejected by "
		if r.By == api.HeldByCheck {
			verb = "withheld from "
		}
		b.WriteString(verb + plural.Form(len(p.proxies), "", "%d proxies, such as ") + r.Node.ID)
		fmt.Fprintf(&b, ": %s %s: %s", r.ID.TypeURL[strings.LastIndexByte(r.ID.TypeURL, '.')+1:], r.ID.Name,
			oneLine(r.Reason))
		b.WriteString(api.RetrySaid(r.Retry, time.Now()))
		switch {
		case p.field != "":
			fmt.Fprintf(&b, "; see %s", p.field)
		case !r.Attributed:
			b.WriteString("; the policies behind it are being looked for")
		case api.OfHost(r.Blame):
			b.WriteString("; the reason lies on the host of the Envoy, and no policy is its cause" + freePort(r.Reason))
		case len(r.Blame) == 0:
			b.WriteString("; no policy shapes it, so it is this resource, its Mesh or a service that it leads to")
		}
		if n := len(p.others); n > 0 {
			b.WriteString("; and " + plural.Count(n, "more resource") + " there")
		}
		switch {
		case r.Accepted != nil:
			b.WriteString("; it stays as it was accepted last, all else goes on")
		case r.Older != "":
			b.WriteString("; the older version that the client came with stays in force, all else goes on")
		default:
			b.WriteString("; it is not in force, all else goes on")
		}
		out = append(out, api.Problem{Resource: key[0], Severity: api.SeverityError, Reason: b.String()})
	}
	slices.SortFunc(out, func(a, b api.Problem) int {
		return cmp.Or(cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Reason, b.Reason))
	})
	return out
}

// boundPort is the port that an Envoy could not bind, in its words.
var boundPort = regexp.MustCompile(`cannot bind '[^']*:(\d{1,5})': Address already in use`)

// freePort says how to find who has a port that an Envoy wants; "" for other reasons.
func freePort(reason string) string {
	m := boundPort.FindStringSubmatch(reason)
	if m == nil {
		return ""
	}
	return fmt.Sprintf(
		`: find the process that listens there with "ss -lntp 'sport = :%s'" and stop it, or take another port`, m[1])
}

// oneLine shortens the message of a client to a line.
func oneLine(s string) string {
	return clip.Text(strings.Join(strings.Fields(s), " "), maxProblemReason)
}
