package inspect

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/agent/generate"
	"github.com/nearside-mesh/nearside/agent/node"
	"github.com/nearside-mesh/nearside/agent/resource"
	"github.com/nearside-mesh/nearside/agent/store"
	"github.com/nearside-mesh/nearside/agent/xds"
)

// verifyTime is how long a write waits for the check. Proxies that were not reached until then are checked when their
// config is made.
const verifyTime = 10 * time.Second

// writeChecked stores resources, or with dry finds out what storing them would do, unless that would break proxies. The
// warnings are about what is not as it reads, and what could not be checked.
func (s *Server) writeChecked(r *http.Request, author string, rs []*resource.Resource, dry bool) ([]Change, []string, *Error) {
	changes, e := s.write(r, author, rs, true)
	if e != nil {
		return nil, nil, e
	}
	v := s.verify(r.Context(), &Comparison{Put: rs})
	if e := refusal(v); e != nil {
		return nil, nil, e
	}
	if dry {
		if v != nil {
			v.Warnings = nil // the diff of a dry run has them
		}
	} else if changes, e = s.write(r, author, rs, false); e != nil {
		return nil, nil, e
	}
	return changes, verifyWarnings(v), nil
}

// verifyDiff adds to a comparison what the check has to say about the change.
func (s *Server) verifyDiff(ctx context.Context, c *Comparison, d *Diff) {
	if v := s.verify(ctx, c); v != nil {
		d.Findings = append(d.Findings, v.Findings...)
	}
}

// verify checks a change against the proxies concerned. The store may change meanwhile; then it is done once more, and
// what comes later is found when configs are made. Nil: nothing changes.
func (s *Server) verify(ctx context.Context, c *Comparison) *Verified {
	unknown := func(reason string) *Verified {
		return &Verified{Notes: []Problem{{Resource: "the change", Severity: SeverityWarning, Reason: reason}}}
	}
	ctx, cancel := context.WithTimeout(ctx, verifyTime)
	defer cancel()
	select { // one at a time: it may take all of a processor for a while
	case s.verifying <- struct{}{}:
		defer func() { <-s.verifying }()
	case <-ctx.Done():
		return unknown("others were being checked all the time")
	}
	var out *Verified
	for range 2 {
		snap := s.opts.Store.Snapshot()
		v := s.verification(snap, c)
		if v == nil {
			return nil
		}
		var err error
		if out, err = Verify(ctx, *v); err != nil {
			return unknown(err.Error())
		}
		if s.opts.Store.Snapshot().Revision() == snap.Revision() {
			break
		}
	}
	return out
}

// verification is the question whether a change breaks proxies; nil when it changes nothing.
func (s *Server) verification(snap *store.Snapshot, c *Comparison) *Verification {
	set := snap.Set()
	v := &Verification{Set: set, Shadow: c.Shadow, NewMesh: s.opts.NewMesh, Decode: s.opts.Registry.DecodeOne}
	for _, k := range c.Delete {
		if set.Get(k) != nil {
			v.Change = append(v.Change, k)
		}
	}
	for _, r := range c.Put {
		if was := set.Get(r.Key); was == nil || was.Digest != r.Digest {
			v.Change = append(v.Change, r.Key)
		}
	}
	if len(v.Change) == 0 && !c.Shadow {
		return nil
	}
	kept := slices.DeleteFunc(set.All(), func(r *resource.Resource) bool { return slices.Contains(c.Delete, r.Key) })
	v.After = resource.NewSet(slices.Concat(kept, c.Put))
	if last := s.opts.Last(); last != nil {
		if last.Revision == snap.Revision() {
			v.Made = last.Meshes
		}
		v.InForce = func(id ProxyID) *generate.Proxy { return last.Proxies[id] }
	}
	if s.opts.NewTry != nil {
		v.Try = s.opts.NewTry()
	}
	v.Proxies = s.concerned(v, c)
	return v
}

// concerned lists the proxies that a change may concern: those that are connected, where none is every dataplane, and
// the dataplanes of the change.
func (s *Server) concerned(v *Verification, c *Comparison) []ProxyID {
	whom := Comparison{Set: v.Set, Connected: s.connected(), Mesh: c.Mesh, Dataplane: c.Dataplane}
	_, out := whom.proxies(v.After)
	meshes, all := map[string]bool{}, c.Shadow
	for _, k := range v.Change {
		switch {
		case k.Kind == kindMesh:
			meshes[k.Name] = true
		case k.Mesh == "":
			all = true
		default:
			meshes[k.Mesh] = true
		}
		known := func(id ProxyID) bool { return id.Mesh == k.Mesh && id.Name == k.Name }
		if k.Kind == kindDataplane && c.Dataplane == "" && (c.Mesh == "" || c.Mesh == k.Mesh) && !slices.ContainsFunc(out, known) {
			out = append(out, ProxyID{Mesh: k.Mesh, Name: k.Name, Flavor: node.FlavorEnvoy})
		}
	}
	out = slices.DeleteFunc(out, func(id ProxyID) bool { return !all && !meshes[id.Mesh] })
	slices.SortFunc(out, func(a, b ProxyID) int { return cmp.Or(cmp.Compare(a.Mesh, b.Mesh), cmp.Compare(a.Name, b.Name)) })
	return out
}

// connected lists the clients that take the config of a dataplane from this agent.
func (s *Server) connected() []ProxyID {
	var out []ProxyID
	if s.opts.Proxies == nil {
		return nil
	}
	for _, p := range s.opts.Proxies() {
		if p.Type == "" && p.State != xds.StateDisconnected { // of a mesh
			out = append(out, ProxyID{Mesh: p.Mesh, Name: p.Name, Flavor: p.Flavor})
		}
	}
	return out
}

// refusal is the answer to a change that would break proxies, nil for another one.
func refusal(v *Verified) *Error {
	if v == nil || len(v.Blocking()) == 0 {
		return nil
	}
	list := v.Blocking()
	e := problem(http.StatusUnprocessableEntity, ProblemWouldBreak, "Would break proxies",
		"Envoy could not use what this makes; nothing was stored; mend what is named")
	for i := range list {
		e.InvalidParameters = append(e.InvalidParameters, list[i].parameter())
	}
	return e
}

// parameter is a finding as a field of what was sent.
func (f *Finding) parameter() InvalidParameter {
	p := InvalidParameter{Reason: f.String()}
	var others []string
	for i, c := range f.Causes {
		switch {
		case i == 0:
			p.Document, p.Field = c.Ref.String(), c.Field
		case c.Field != "":
			others = append(others, c.Ref.String()+" "+c.Field)
		default:
			others = append(others, c.Ref.String())
		}
	}
	if len(others) > 0 {
		p.Reason += "; together with " + strings.Join(others, ", ")
	}
	return p
}

// verifyWarnings tells the rest of what was found.
func verifyWarnings(v *Verified) []string {
	var out []string
	if v == nil {
		return out
	}
	for _, f := range v.Surprises() {
		out = append(out, f.warning(""))
	}
	for _, f := range v.Known {
		out = append(out, f.warning("as with other proxies already: "))
	}
	for _, w := range v.Warnings {
		out = append(out, w.Resource.String()+": "+w.Reason)
	}
	for _, n := range v.Notes {
		out = append(out, "not checked: "+n.Resource+": "+n.Reason)
	}
	if v.Of > v.Proxies {
		out = append(out, fmt.Sprintf("not checked: %d of %d proxies: the time was up; they are checked when their config is made", v.Of-v.Proxies, v.Of))
	}
	if v.More > 0 {
		out = append(out, fmt.Sprintf("%d more findings are left out", v.More))
	}
	return out
}

// deleteWarnings tells what a deletion breaks, and the rest.
func deleteWarnings(v *Verified) []string {
	out := []string{}
	if v != nil {
		for _, f := range v.Blocking() {
			out = append(out, f.warning("breaks a proxy, which keeps what it has: "))
		}
	}
	return append(out, verifyWarnings(v)...)
}

// Line is the finding in one line with what causes it.
func (f *Finding) Line() string { return f.warning("") }

// warning is the line with something more before what was found.
func (f *Finding) warning(intro string) string {
	p := f.parameter()
	who := p.Document
	if p.Field != "" {
		who += " " + p.Field
	}
	if who != "" {
		who += ": "
	}
	return who + intro + p.Reason
}
