package reconcile

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/deliver/status"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/identity"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// generateZone derives a zone proxy from all meshes into s, which stays unchanged on failure. It
// reports whether the proxy exists.
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
		p.keeps(s, r.Key, err)
		return true
	}
	for _, name := range slices.Sorted(maps.Keys(p.failed)) {
		s.stale = status.Stale{Reason: meshFailed(name, p.failed[name]), Revision: p.revision}
	}
	s.proxy, s.revision = next, p.revision
	for _, at := range p.r.derivedAt {
		s.revision = min(s.revision, at)
	}
	for _, w := range next.Warnings {
		s.problem(w.Resource, api.SeverityWarning, w.Reason)
	}
	return true
}

// zoneSecrets returns the certificate of a zone proxy for each mesh with mTLS. If one is missing,
// that is a problem, and only the connections of that mesh fail.
func (p *pass) zoneSecrets(meshes []*generate.Mesh, ref node.Ref, s *proxyState) map[string]*identity.Secrets {
	out := map[string]*identity.Secrets{}
	if ref.Type != node.ProxyEgress {
		return out // a ZoneIngress forwards encrypted connections
	}
	for _, m := range meshes {
		if m.View.Spec.MTLSEnabled() == nil {
			continue
		}
		// No dataplane can have this name.
		secrets, err := p.r.o.Certificates.Proxy(m.View.Name, ref.NodeID(),
			map[string][]string{resource.TagService: {mesh.EgressService}})
		if errors.Is(err, identity.ErrSpreading) {
			continue // reported as a warning of the mesh
		}
		if err != nil {
			s.problem(ref.Key(), api.SeverityError,
				fmt.Sprintf("it has no certificate for mesh %q, so its connections there fail: %v", m.View.Name, err))
			continue
		}
		out[m.View.Name] = secrets
	}
	return out
}

// isZoneProxy reports whether a certificate belongs to an existing zone proxy.
func (p *pass) isZoneProxy(name string) bool {
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
