package offline

import (
	"context"
	"fmt"
	"slices"

	"github.com/nearside-mesh/nearside/agent/envoybin"
	"github.com/nearside-mesh/nearside/agent/generate"
	"github.com/nearside-mesh/nearside/agent/inspect"
	"github.com/nearside-mesh/nearside/agent/kinds"
	"github.com/nearside-mesh/nearside/agent/mesh"
	"github.com/nearside-mesh/nearside/agent/node"
	"github.com/nearside-mesh/nearside/agent/policy"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// VerifyOptions says how the configs of a set are checked.
type VerifyOptions struct {
	Zone     string
	Envoy    *envoybin.Binary             // is asked too; nil: none
	Progress func(done, all int)          // is told after each proxy; nil: nobody
	Against  *Offline                     // the present resources: only what is not there already is told; nil: there are none
	Delete   []ResourceKey                // with Against: what would be deleted
	Shadow   bool                         // shadow policies act like the others
	Only     func(mesh, name string) bool // the proxies that are looked at; nil: all
}

// Finding is something that the check has to say about a config.
type Finding = inspect.Finding

// Verified is what the check has to say about the configs of a set.
type Verified struct {
	Proxies  int       // whose config was checked
	Findings []Finding // not null; those that block first
	Faults   Faults    // those that block, each with the file and document of its cause
	Warnings Faults    // the others
	Notes    []string  // what could not be checked, and why
}

// Verify makes the configs of all dataplanes of the set and checks them as an agent does before it sends them. It stops
// when ctx ends, with its error.
func (o *Offline) Verify(ctx context.Context, with VerifyOptions) (*Verified, error) {
	v := inspect.Verification{
		After: o.set, Shadow: with.Shadow, Progress: with.Progress,
		NewMesh: func(set *resource.Set, name string, prev *generate.Mesh) (*generate.Mesh, error) {
			return generate.NewMesh(set, name, mesh.Options{Zone: with.Zone, FlatNetwork: o.FlatNetwork}, kinds.Plugins(), policy.Options{AutoReachable: o.AutoReachable}, prev)
		},
		Decode: kinds.Registry().DecodeOne,
	}
	if with.Envoy != nil {
		v.Try = with.Envoy.Try
	}
	if with.Against != nil {
		v.Set = with.Against.set
		kept := slices.DeleteFunc(v.Set.All(), func(r *resource.Resource) bool { return slices.Contains(with.Delete, r.Key) })
		v.After = resource.NewSet(slices.Concat(kept, o.list))
		v.Change = append(v.Change, with.Delete...)
	}
	for _, r := range o.list {
		v.Change = append(v.Change, r.Key)
	}
	out := &Verified{Findings: []Finding{}}
	missing := map[string]int{}
	for _, r := range v.After.Kind("Dataplane") {
		switch {
		case with.Only != nil && !with.Only(r.Mesh, r.Name):
		case v.After.Get(resource.Key{Kind: "Mesh", Name: r.Mesh}) == nil:
			if missing[r.Mesh]++; missing[r.Mesh] == 1 {
				out.Notes = append(out.Notes, fmt.Sprintf("mesh %q is not among the resources, so none of its dataplanes was checked", r.Mesh))
			}
		default:
			v.Proxies = append(v.Proxies, inspect.ProxyID{Mesh: r.Mesh, Name: r.Name, Flavor: node.FlavorEnvoy})
		}
	}
	found, err := inspect.Verify(ctx, v)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	out.Proxies, out.Findings = found.Proxies, found.Findings
	for i := range found.Findings {
		f := &found.Findings[i]
		if f.Blocks() {
			out.Faults = append(out.Faults, o.fault(f))
		} else {
			out.Warnings = append(out.Warnings, o.fault(f))
		}
	}
	for _, w := range found.Warnings {
		at := o.from[w.Resource]
		out.Warnings = append(out.Warnings, Fault{File: at.file, Document: at.document, Resource: w.Resource.String(), Reason: w.Reason})
	}
	for _, n := range found.Notes {
		out.Notes = append(out.Notes, n.Resource+": "+n.Reason)
	}
	if found.More > 0 {
		out.Notes = append(out.Notes, fmt.Sprintf("%d more findings are left out", found.More))
	}
	return out, nil
}

// fault tells a finding at its first cause; the others stand in the reason.
func (o *Offline) fault(f *Finding) Fault {
	out := Fault{Reason: f.String()}
	for i, c := range f.Causes {
		key := resource.Key{Kind: c.Type, Mesh: c.Mesh, Name: c.Name}
		at, ours := o.from[key]
		if i == 0 {
			out.File, out.Document, out.Resource, out.Field = at.file, at.document, key.String(), c.Field
			continue
		}
		lead := "; together with "
		if i > 1 {
			lead = ", "
		}
		out.Reason += lead + key.String()
		if c.Field != "" {
			out.Reason += " " + c.Field
		}
		if ours {
			out.Reason += fmt.Sprintf(" (%s, document %d)", at.file, at.document)
		}
	}
	return out
}
