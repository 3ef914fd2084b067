package reconcile

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nearside-mesh/nearside/agent/inspect"
	"github.com/nearside-mesh/nearside/agent/mesh"
	"github.com/nearside-mesh/nearside/agent/node"
	"github.com/nearside-mesh/nearside/agent/resource"
	"github.com/nearside-mesh/nearside/agent/xds"
)

// Phases in which the mutual TLS of a mesh is switched on, and in the other order off: each is safe beside the one before
// and after it, so that proxies need not change at the same moment.
const (
	phaseOff      = iota // nobody uses TLS
	phaseInbounds        // inbounds take TLS and plain text, clients send plain text
	phaseClients         // inbounds take both, clients send TLS
	phaseOn              // as the Mesh and its policies have it
)

// switching is the mutual TLS of one mesh.
type switching struct {
	phase int
	since time.Time
	mtls  *resource.MTLS // of the Mesh when it was on last
	// What the phase makes of the Mesh: of is the one that was looked at.
	of, spec *resource.Mesh
}

// transition says how the mutual TLS of a mesh is on the way to what the Mesh asks for; nil once it is there. A mesh that
// is seen for the first time, or of which no proxy is connected, is there at once.
func (p *pass) transition(m *resource.Resource) *mesh.Transition {
	spec, ok := m.Spec.(*resource.Mesh)
	if !ok {
		return nil
	}
	target := phaseOff
	if spec.MTLSEnabled() != nil {
		target = phaseOn
	}
	s := p.r.switching[m.Name]
	switch {
	case s == nil || len(p.r.o.Publisher.Connected()) == 0:
		s = &switching{phase: target}
		p.r.switching[m.Name] = s
	case s.phase != target && p.now.Sub(s.since) >= p.r.o.Hold:
		if s.phase < target {
			s.phase++
		} else {
			s.phase--
		}
		s.since, s.of = p.now, nil
	}
	if target == phaseOn {
		s.mtls = spec.MTLS
	}
	const said = "mutual TLS is being switched in steps of %s, so that no connection is lost: %s"
	step := func(what string) string {
		if p.switching == nil {
			p.switching = map[string]string{}
		}
		p.switching[m.Name] = fmt.Sprintf(said, p.r.o.Hold, what)
		return p.switching[m.Name]
	}
	if s.phase == target && s.since.Equal(p.now) {
		step("proxies are being sent the last one")
		p.switched = append(p.switched, m.Name)
	}
	if s.phase != target {
		due := s.since.Add(p.r.o.Hold)
		if p.switchAt.IsZero() || due.Before(p.switchAt) {
			p.switchAt = due
		}
		p.problem(m.Key, inspect.SeverityWarning, step([...]string{
			phaseOff: "inbounds are next to take it", phaseInbounds: "inbounds take it, and proxies send each other plain text", phaseClients: "proxies use it, and inbounds take plain text too", phaseOn: "proxies use it",
		}[s.phase]))
	}
	if s.phase != phaseInbounds && s.phase != phaseClients {
		return nil
	}
	if s.of != spec {
		s.of, s.spec = spec, permissive(spec, s.mtls)
	}
	return &mesh.Transition{Spec: s.spec, PlainClients: s.phase == phaseInbounds}
}

// permissive is a Mesh with mutual TLS that takes plain text too.
func permissive(spec *resource.Mesh, mtls *resource.MTLS) *resource.Mesh {
	out, with := *spec, *mtls
	with.Backends = slices.Clone(mtls.Backends)
	for i := range with.Backends {
		with.Backends[i].Mode = resource.ModePermissive
	}
	out.MTLS = &with
	return &out
}

// publish serves the outcome of a pass. Meshes that have taken their last step count as switching until proxies are being sent it.
func (r *Reconciler) publish(last *inspect.Last, configs map[node.Key]xds.Config, switched []string) {
	r.last.Store(last)
	r.o.Publisher.Recheck()
	r.o.Publisher.Publish(configs)
	if len(switched) == 0 {
		return
	}
	out := *last
	out.Switching = maps.Clone(last.Switching)
	for _, name := range switched {
		delete(out.Switching, name)
	}
	r.last.Store(&out)
}
