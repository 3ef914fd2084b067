package offline

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nearside-mesh/nearside/agent/answer/change"
	"github.com/nearside-mesh/nearside/agent/answer/envoybin"
	"github.com/nearside-mesh/nearside/agent/base/plural"
	"github.com/nearside-mesh/nearside/agent/base/workers"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/identity"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/suffix"
)

// VerifyOptions configures [Offline.Verify].
type VerifyOptions struct {
	Zone     string
	Envoy    *envoybin.Binary    // a real Envoy that also validates the configs; nil: none
	Progress func(done, all int) // called after each proxy; may be nil
}

// Verified contains the result of checking the configs of a set.
type Verified struct {
	Proxies  int             // number of checked configs
	Findings []api.Finding   // not null; blocking ones first
	Faults   resource.Faults // blocking findings with file and document of the cause
	Warnings resource.Faults // other findings
	Notes    []string        // what could not be checked and why
}

// Verify generates the configs of all dataplanes of the set and checks them like an agent before it
// sends them. It returns the error of ctx if ctx ends.
func (o *Offline) Verify(ctx context.Context, with VerifyOptions) (*Verified, error) {
	q := change.Question{Put: o.list, Progress: with.Progress, NewMesh: o.newMesh(with.Zone),
		Decode: kinds.Registry().DecodeOne,
		Each:   workers.Each, Workers: workers.All(), MaxWarnings: maxWarnings}
	if with.Envoy != nil {
		q.Try = with.Envoy.Try
	}
	out := &Verified{}
	missing := map[string]bool{}
	for _, r := range o.set.Kind("Dataplane") {
		if o.set.Get(resource.Key{Kind: "Mesh", Name: r.Mesh}) == nil && !missing[r.Mesh] {
			missing[r.Mesh] = true
			out.Notes = append(out.Notes,
				fmt.Sprintf("mesh %q is not among the resources, so none of its dataplanes was checked", r.Mesh))
		}
	}
	found, err := change.Verify(ctx, q)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := o.verifyZones(with.Zone, found); err != nil {
		return nil, err
	}
	out.Findings = found.Findings
	for i := range found.Findings {
		f := &found.Findings[i]
		if f.Blocks() {
			out.Faults = append(out.Faults, o.fault(f))
		} else {
			out.Warnings = append(out.Warnings, o.fault(f))
		}
	}
	out.Proxies = found.Proxies
	for _, name := range slices.Sorted(maps.Keys(o.exposed)) {
		out.Warnings = append(out.Warnings, resource.Fault{File: name, Reason: o.exposed[name]})
	}
	for _, r := range o.set.Kind("Mesh") {
		if spec, ok := r.Spec.(*resource.Mesh); ok && spec.MTLSEnabled() != nil {
			for _, reason := range identity.Notes(spec.MTLS, time.Now()) {
				found.Warnings = append(found.Warnings, mesh.Warning{Resource: r.Key, Reason: reason})
			}
		}
	}
	if unknown := found.Lacking(func() bool { return ctx.Err() != nil }); unknown > 0 {
		out.Notes = append(out.Notes, "the effect of "+plural.Count(unknown, "policy")+" was not examined")
	}
	for _, w := range found.Warnings {
		at := o.from[w.Resource]
		out.Warnings = append(out.Warnings,
			resource.Fault{File: at.file, Document: at.document, Resource: w.Resource.String(), Reason: w.Reason})
	}
	for _, n := range found.Notes {
		out.Notes = append(out.Notes, n.Resource+": "+n.Reason)
	}
	if found.More > 0 {
		out.Notes = append(out.Notes, plural.Count(found.More, "more finding"))
	}
	return out, nil
}

// Refused returns a fault for each resource that an agent refuses to store over the API, although
// it keeps an existing one.
func (o *Offline) Refused() (out resource.Faults) {
	for _, r := range o.list {
		if reason := suffix.Refusal(r); reason != "" {
			at := o.from[r.Key]
			out = append(out, resource.Fault{File: at.file, Document: at.document, Resource: r.Key.String(),
				Field: suffix.Field, Reason: reason})
		}
	}
	return out
}

// maxWarnings limits the warnings about resources without effect.
const maxWarnings = 10_000

// verifyZones checks the configs of the zone proxies and adds the result to found.
func (o *Offline) verifyZones(zone string, found *change.Verified) error {
	var list []*resource.Resource
	for _, t := range []node.Type{node.ProxyEgress, node.ProxyIngress} {
		for _, r := range o.set.Kind(t.Kind()) {
			if generate.InZone(r, cmp.Or(zone, mesh.DefaultZone)) {
				list = append(list, r)
			}
		}
	}
	if len(list) == 0 {
		return nil
	}
	in, err := o.zoneInput(zone)
	if err != nil {
		return err
	}
	looker := change.NewLooker()
	for _, r := range list {
		in.Resource = r
		is := looker.Zone(in)
		found.Proxies++
		if is.Failed != nil {
			found.Notes = append(found.Notes, api.Problem{Resource: r.Key.String(), Severity: api.SeverityWarning,
				Reason: "no config can be computed: " + is.Failed.Error()})
		}
		for _, w := range is.Warnings {
			if !slices.Contains(found.Warnings, w) {
				found.Warnings = append(found.Warnings, w)
			}
		}
		for i := range is.Findings {
			f := change.ForAPI(&is.Findings[i])
			f.Proxies, f.Total, f.Causes = []string{r.Key.String()}, 1, []api.Cause{{Ref: api.RefOf(r.Key), Change: true}}
			found.Findings = append(found.Findings, f)
		}
	}
	slices.SortStableFunc(found.Findings, func(a, b api.Finding) int { // blocking findings first
		switch {
		case a.Blocks() == b.Blocks():
			return 0
		case a.Blocks():
			return -1
		}
		return 1
	})
	return nil
}

// fault converts a finding to a fault at its first cause. The reason names the other causes.
func (o *Offline) fault(f *api.Finding) resource.Fault {
	out := resource.Fault{Reason: f.Reason(func(r api.Ref) string {
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
