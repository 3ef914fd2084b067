package offline

import (
	"context"
	"fmt"

	"github.com/nearside-mesh/nearside/agent/change"
	"github.com/nearside-mesh/nearside/agent/envoybin"
	"github.com/nearside-mesh/nearside/agent/explain"
	"github.com/nearside-mesh/nearside/agent/kinds"
	"github.com/nearside-mesh/nearside/agent/resource"
	"github.com/nearside-mesh/nearside/agent/workers"
)

// VerifyOptions says how the configs of a set are checked.
type VerifyOptions struct {
	Zone     string
	Envoy    *envoybin.Binary    // is asked too; nil: none
	Progress func(done, all int) // is called after each proxy; nil: nothing is
}

// Finding is something that the check has to say about a config.
type Finding = change.Finding

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
	q := change.Question{Put: o.list, Progress: with.Progress, NewMesh: o.newMesh(with.Zone), Decode: kinds.Registry().DecodeOne,
		Each: workers.Each, Workers: workers.All()}
	if with.Envoy != nil {
		q.Try = with.Envoy.Try
	}
	out := &Verified{}
	missing := map[string]bool{}
	for _, r := range o.set.Kind("Dataplane") {
		if o.set.Get(resource.Key{Kind: "Mesh", Name: r.Mesh}) == nil && !missing[r.Mesh] {
			missing[r.Mesh] = true
			out.Notes = append(out.Notes, fmt.Sprintf("mesh %q is not among the resources, so none of its dataplanes was checked", r.Mesh))
		}
	}
	found, err := change.Verify(ctx, q)
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
		out.Notes = append(out.Notes, fmt.Sprintf("%d more findings", found.More))
	}
	return out, nil
}

// fault is a finding at its first cause; the others are in the reason.
func (o *Offline) fault(f *Finding) Fault {
	out := Fault{Reason: f.Reason(func(r explain.Ref) string {
		if at, ours := o.from[r.Key()]; ours {
			return fmt.Sprintf(" (%s, document %d)", at.file, at.document)
		}
		return ""
	})}
	if len(f.Causes) > 0 {
		c := f.Causes[0]
		at := o.from[c.Key()]
		out.File, out.Document, out.Resource, out.Field = at.file, at.document, c.Ref.String(), c.Field
	}
	return out
}
