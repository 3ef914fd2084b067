package reconcile

import (
	"errors"
	"fmt"
	"time"

	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/deliver/status"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/identity"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// generate derives one proxy into s, which stays unchanged on failure. It reports whether the proxy
// exists.
func (p *pass) generate(meshes map[string]*generate.Mesh, key node.Key, s *proxyState) bool {
	ref, err := node.ParseRef(key.ID)
	if err != nil {
		return false
	}
	if p.keepsConfig(ref, s) {
		return true
	}
	if ref.Type != node.ProxyDataplane {
		return p.generateZone(meshes, key, ref, s)
	}
	meshName, name := ref.Mesh, ref.Name
	m := meshes[meshName]
	if m == nil || p.set.Get(ref.Key()) == nil { // a mesh with errors still contains deleted dataplanes
		return false
	}
	began := time.Now()
	var secrets *identity.Secrets
	next, err := guard(p.r.o.Log, "proxy "+key.ID, func() (*generate.Proxy, error) {
		in := generate.Input{Mesh: m, Name: name, Flavor: key.Flavor, Build: p.build(key)}
		if checked := p.offered.of(meshName, name, key.Flavor); checked != nil {
			in.Also = checked.Proxy
		}
		var err error
		if in.Secrets, err = p.secrets(in); err != nil {
			return nil, err
		}
		secrets = in.Secrets
		return p.r.o.Generate(in, s.proxy, p.r.memo)
	})
	p.r.proxySeconds.Observe(time.Since(began).Seconds())
	var notFound *generate.NotFoundError
	if errors.As(err, &notFound) {
		return false
	}
	if errors.Is(err, identity.ErrSpreading) {
		return true // reported as a warning of the mesh
	}
	if err != nil {
		p.defect(err)
		p.keeps(s, ref.Key(), err)
		return true
	}
	s.proxy, s.secrets, s.revision = next, secrets, p.r.derivedAt[meshName]
	if why := p.failed[meshName]; why != "" {
		s.stale = status.Stale{Reason: meshFailed(meshName, why), Revision: p.revision}
	}
	for _, w := range next.Warnings {
		s.problem(w.Resource, api.SeverityWarning, w.Reason)
	}
	return true
}

// keeps records that a proxy keeps its config, because no new one can be computed.
func (p *pass) keeps(s *proxyState, owner resource.Key, err error) {
	s.problem(owner, api.SeverityError,
		fmt.Sprintf("no new config can be computed, so the proxy keeps its current one: %v", err))
	s.stale = status.Stale{Reason: fmt.Sprintf("no new config can be computed: %v", err), Revision: p.revision}
}

func meshFailed(name, why string) string {
	return fmt.Sprintf("no new config can be computed, because mesh %s has an error: %s", name, why)
}

// defect drops caches that an internal error may have left inconsistent.
func (p *pass) defect(err error) {
	var defect *defectError
	if errors.As(err, &defect) {
		p.r.memo, p.r.variantMemo = generate.NewMemo(), generate.NewMemo()
	}
}
