package reconcile

import (
	"fmt"
	"time"

	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// tlsSteps is the state of the TLS versions and ciphers of one mesh. Proxies change at different
// times, so a new range must overlap with that of every other proxy: they first get the union of
// the old and the new range, and the new range after all of them have the union.
type tlsSteps struct {
	kind  string        // of the policies
	used  mesh.TLSRange // by proxies
	since time.Time     // when used changed
	done  time.Time     // when all proxies were updated for used; valid if not before since
}

// key returns the key of all policies of the kind in a mesh.
func (s *tlsSteps) key(mesh string) resource.Key { return resource.Key{Kind: s.kind, Mesh: mesh} }

func meshKey(name string) resource.Key { return resource.Key{Kind: "Mesh", Name: name} }

// newMesh derives a mesh in the current steps of its changes of TLS.
func (p *pass) newMesh(set *resource.Set, name string, prev *generate.Mesh, fixed bool) (*generate.Mesh, error) {
	o := mesh.Options{Transition: p.transitions[name]}
	if s := p.r.tls[name]; s != nil && prev != nil {
		o.TLS = prev.View.TLS
	}
	for {
		m, err := p.r.newMesh(set, name, prev, o, fixed)
		if err != nil {
			return nil, err
		}
		also := p.stepTLS(m)
		if (also == nil) == (o.TLS == nil) && (also == nil || also.String() == o.TLS.String()) {
			return m, nil
		}
		o.TLS, prev = also, m // one more round, in which the policies are the same
	}
}

// stepTLS makes the next step to the TLS versions and ciphers of the policies of a mesh. It returns
// the range that proxies use in addition, or nil when they use only that of the policies. A second
// call in a pass changes nothing.
func (p *pass) stepTLS(m *generate.Mesh) *mesh.TLSRange {
	name := m.View.Name
	for i := range m.Policies.Plugins {
		plugin := &m.Policies.Plugins[i]
		if plugin.TLS == nil {
			continue
		}
		kind := plugin.Kinds[0].Kind
		target := plugin.TLS(m.Policies.Policies(kind))
		s := p.r.tls[name]
		if s == nil || len(p.r.o.Publisher.Connected()) == 0 || m.View.Spec.MTLSEnabled() == nil {
			p.r.tls[name] = &tlsSteps{kind: kind, used: target}
			return nil
		}
		return p.towards(s, name, target)
	}
	return nil
}

// towards makes the next step of a mesh to a range.
func (p *pass) towards(s *tlsSteps, name string, target mesh.TLSRange) *mesh.TLSRange {
	held := !s.done.Before(s.since) && p.now.Sub(s.done) >= p.r.o.Hold
	switch {
	case !s.used.Covers(target):
		s.used, s.since = s.used.Union(target), p.now
	case !target.Covers(s.used) && held:
		s.used, s.since = target, p.now
	}
	const format = "TLS versions and ciphers change in steps of %s, so that no connection is lost: %s"
	if target.Covers(s.used) {
		s.used = target
		if s.done.Before(s.since) {
			p.step(s.key(name), fmt.Sprintf(format, p.r.o.Hold, "the last step is being sent to proxies"))
			p.switched = append(p.switched, s.key(name))
		}
		return nil
	}
	p.stepDue(s.since, s.done)
	p.problem(meshKey(name), api.SeverityWarning, p.step(s.key(name),
		fmt.Sprintf(format, p.r.o.Hold, "proxies use "+s.used.String()+" until all of them can use "+target.String())))
	used := s.used
	return &used
}
