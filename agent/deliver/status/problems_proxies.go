package status

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nearside-mesh/nearside/agent/base/plural"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// inspectCommand returns the command that shows what a proxy lacks.
func inspectCommand(mesh, name string) string {
	if mesh == "" { // a zone proxy
		return "nearside get dataplanes"
	}
	return "nearside inspect dataplane " + name + " -m " + mesh + " --type=status"
}

// passProblems returns the problems that the last pass found.
func passProblems(_ context.Context, f *Facts) []api.Problem {
	if f.Last == nil {
		return nil
	}
	return append([]api.Problem(nil), f.Last.Problems...) // the result is immutable
}

func (t *Tracker) rejectionProblems(context.Context, *Facts) []api.Problem { return t.Rejections() }

// pendingAfter is how long a config may wait for an acknowledgment before that is a problem.
const pendingAfter = 10 * time.Second

// pendingLong reports whether a client of a proxy has waited or let the agent wait for long.
func pendingLong(p *api.Proxy) bool {
	return slices.ContainsFunc(p.Clients, func(c api.ProxyStatus) bool {
		return c.State != api.StateDisconnected && !c.InSync && time.Since(lastSent(&c)) > pendingAfter
	})
}

// proxyProblems returns problems of Envoys that ask for a proxy that does not exist, that do not
// acknowledge their config, or that rejected it without a rejection of rejectionProblems.
func (t *Tracker) proxyProblems(_ context.Context, f *Facts) (out []api.Problem) {
	rejections := map[resource.Key]bool{}
	if t.Progress != nil {
		for _, p := range t.Progress() {
			if ref, err := node.ParseRef(p.Node.ID); err == nil && len(p.Rejected) > 0 {
				rejections[ref.Key()] = true
			}
		}
	}
	for i := range f.Proxies {
		p := &f.Proxies[i]
		x := api.Problem{Resource: Key(p).String(), Severity: api.SeverityWarning, Reason: p.Reason}
		switch {
		case p.State == api.StateRejected && !rejections[Key(p)]:
			x.Severity, x.Check, x.Command = api.SeverityError, api.ClassRejected, inspectCommand(p.Mesh, p.Name)
		case p.State == api.StateUnknown:
			x.Check, x.Command = api.ClassUnknownNode, "nearside get dataplanes"
			if p.Type == node.ProxyDataplane {
				x.Command += " -m " + p.Mesh
			}
		case p.State == api.StatePending && pendingLong(p):
			x.Check, x.Command = api.ClassPending, inspectCommand(p.Mesh, p.Name)
		default:
			continue
		}
		out = append(out, x)
	}
	return out
}

// unreadyAfter is how long inbounds may be unready before that is a problem.
const unreadyAfter = 10 * time.Second

// endpointProblems returns the Dataplanes of this node whose endpoints receive no traffic.
func endpointProblems(_ context.Context, f *Facts) (out []api.Problem) {
	for i := range f.Proxies {
		p := &f.Proxies[i]
		if s := p.Endpoints; s != nil && p.Node == "" && (s.State != resource.EndpointUnready ||
			time.Since(s.Since) > unreadyAfter) {
			out = append(out, api.Problem{Resource: Key(p).String(), Severity: api.SeverityWarning, Reason: endpointText(s),
				Command: inspectCommand(p.Mesh, p.Name)})
		}
	}
	return out
}

// orphanProblems returns the meshes that do not exist although resources name them.
func orphanProblems(_ context.Context, f *Facts) (out []api.Problem) {
	type orphans struct {
		first resource.Key
		n     int
	}
	of := map[string]*orphans{}
	set := f.Snap.Set()
	for _, rec := range f.Snap.Records() {
		k := rec.Key
		if k.Mesh == "" || resource.Internal(k.Kind) || set.Get(resource.Key{Kind: kindMesh, Name: k.Mesh}) != nil {
			continue
		}
		if of[k.Mesh] == nil {
			of[k.Mesh] = &orphans{first: k}
		}
		of[k.Mesh].n++
	}
	for _, name := range slices.Sorted(maps.Keys(of)) {
		x := of[name]
		out = append(out, api.Problem{Resource: x.first.String(), Severity: api.SeverityWarning,
			Reason: fmt.Sprintf("%s not in force, because the mesh %s does not exist: apply the Mesh, or fix the name",
				plural.Form(x.n, "it is", "it and others of its mesh (%d in all) are"), name),
			Command: "nearside get meshes"})
	}
	return out
}
