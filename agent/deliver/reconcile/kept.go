package reconcile

import (
	"fmt"
	"slices"

	"github.com/nearside-mesh/nearside/agent/deliver/status"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
)

// heldError means that a config of a mesh would lack a damaged resource, such as the permission
// that denies a request.
type heldError struct{ by store.Damaged }

func (e *heldError) Error() string {
	return fmt.Sprintf("its proxies keep their config, because %s cannot be read from the state file (%s): %s", e.by.Key,
		e.by.Reason, e.by.Remedy())
}

// meshKeys returns the meshes of the snapshot, including damaged ones.
func (p *pass) meshKeys() (out []resource.Key) {
	for _, m := range p.set.Kind("Mesh") {
		out = append(out, m.Key)
	}
	for _, d := range p.snap.AllDamaged() {
		if d.Key.Kind == "Mesh" && p.set.Get(d.Key) == nil {
			out = append(out, d.Key)
		}
	}
	return out
}

// kept reports whether a mesh exists that could not be derived and has no earlier state, so that
// what its proxies have must stay as it is.
func (p *pass) kept(mesh string) bool { return p.failed[mesh] != "" && p.meshes[mesh] == nil }

// keptMeshes returns these meshes with the reasons.
func (p *pass) keptMeshes() map[string]string {
	out := map[string]string{}
	for name, why := range p.failed {
		if p.kept(name) {
			out[name] = why
		}
	}
	return out
}

// keepsConfig reports whether a proxy keeps its config, because one of its meshes is kept, and
// records why. Zone proxies depend on all meshes: without one, its connections would fail.
func (p *pass) keepsConfig(ref node.Ref, s *proxyState) bool {
	if _, damaged := p.snap.Damaged(ref.Key()); !damaged && p.set.Get(ref.Key()) == nil {
		return false
	}
	var names []string
	for name := range p.failed {
		if p.kept(name) && (ref.Type != node.ProxyDataplane || ref.Mesh == name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return false
	}
	name := slices.Min(names)
	s.stale = status.Stale{Reason: meshFailed(name, p.failed[name]), Revision: p.revision}
	return true
}
