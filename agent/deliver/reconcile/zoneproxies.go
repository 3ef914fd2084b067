package reconcile

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/identity"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// generateZone derives a proxy at the border of the zone from all meshes into s, which keeps what
// it has when that fails. It reports whether the proxy exists.
func (p *pass) generateZone(meshes map[string]*generate.Mesh, key node.Key, ref node.Ref, s *proxyState) bool {
	r := p.set.Get(ref.Key())
	if r == nil {
		return false
	}
	began := time.Now()
	next, err := guard(p.r.o.Log, "proxy "+key.ID, func() (*generate.Proxy, error) {
		in := generate.ZoneInput{Resource: r, Zone: p.r.zone(), Meshes: sortedMeshes(meshes), Flavor: key.Flavor,
			SystemCA: p.r.o.SystemCA}
		in.Secrets = p.zoneSecrets(in.Meshes, ref, s)
		return generate.GenerateZone(in, s.proxy, p.r.memo)
	})
	p.r.proxySeconds.Observe(time.Since(began).Seconds())
	if err != nil {
		p.defect(err)
		s.problem(r.Key, api.SeverityError,
			fmt.Sprintf("no new config could be made, the proxy keeps what it has: %v", err))
		return true
	}
	s.proxy, s.revision = next, p.revision
	for _, at := range p.r.madeAt {
		s.revision = min(s.revision, at)
	}
	for _, w := range next.Warnings {
		s.problem(w.Resource, api.SeverityWarning, w.Reason)
	}
	return true
}

// zoneSecrets returns what a proxy at the border of the zone proves itself with in each mesh with
// mTLS. One that has none is a problem, and its connections fail; the others of the proxy do not.
func (p *pass) zoneSecrets(meshes []*generate.Mesh, ref node.Ref, s *proxyState) map[string]*identity.Secrets {
	out := map[string]*identity.Secrets{}
	if ref.Type != node.ProxyEgress {
		return out // it hands on what it cannot read
	}
	for _, m := range meshes {
		if m.View.Spec.MTLSEnabled() == nil {
			continue
		}
		// A name that no dataplane has.
		secrets, err := p.r.o.Certificates.Proxy(m.View.Name, ref.NodeID(),
			map[string][]string{resource.TagService: {mesh.EgressService}})
		if errors.Is(err, identity.ErrSpreading) {
			continue // a warning of the mesh says so
		}
		if err != nil {
			s.problem(ref.Key(), api.SeverityError,
				fmt.Sprintf("it has no certificate of mesh %q, whose connections fail: %v", m.View.Name, err))
			continue
		}
		out[m.View.Name] = secrets
	}
	return out
}

// atBorder reports whether a certificate is that of a proxy at the border of the zone that exists.
func (p *pass) atBorder(name string) bool {
	ref, err := node.ParseRef(name)
	return err == nil && ref.Type != node.ProxyDataplane && p.set.Get(ref.Key()) != nil
}

func sortedMeshes(meshes map[string]*generate.Mesh) []*generate.Mesh {
	out := make([]*generate.Mesh, 0, len(meshes))
	for _, name := range slices.Sorted(maps.Keys(meshes)) {
		out = append(out, meshes[name])
	}
	return out
}
