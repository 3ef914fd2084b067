package reconcile

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Phases in which the mutual TLS of a mesh is switched on, and in the other order off: each is safe
// beside the one before and after it, so that proxies need not change at the same moment.
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
	done  time.Time      // when all proxies had been made for a phase, that of since where it is not before it
	mtls  *resource.MTLS // of the Mesh when it was on last
	// What the phase makes of the Mesh: of is the one that was looked at.
	of, spec *resource.Mesh
}

// transition says how the mutual TLS of a mesh is on the way to what the Mesh asks for; nil once it
// is there. A mesh that is seen for the first time, or of which no proxy is connected, is there at
// once.
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
	case s.phase != target && !s.done.Before(s.since) && p.now.Sub(s.done) >= p.r.o.Hold:
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
	if s.phase == target && s.done.Before(s.since) {
		step("proxies are being sent the last one")
		p.switched = append(p.switched, m.Name)
	}
	if s.phase != target {
		p.stepDue(s)
		p.problem(m.Key, api.SeverityWarning, step([...]string{
			phaseOff: "inbounds are next to take it", phaseInbounds: "inbounds take it, and proxies send each other plain text",
			phaseClients: "proxies use it, and inbounds take plain text too", phaseOn: "proxies use it",
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

// stepDue has a pass made when the next step is due, which is a while after all proxies were made
// for this one.
func (p *pass) stepDue(s *switching) {
	if due := s.done.Add(p.r.o.Hold); !s.done.Before(s.since) && (p.switchAt.IsZero() || due.Before(p.switchAt)) {
		p.switchAt = due
	}
}

// endSteps takes note that all proxies were made for the steps that their meshes are at.
func (p *pass) endSteps() {
	now := p.r.o.Now()
	for name, s := range p.r.switching {
		if s.done.Before(s.since) {
			s.done = now
			if p.switching[name] != "" && !slices.Contains(p.switched, name) {
				p.stepDue(s)
			}
		}
	}
}

// endSwitching takes note that proxies are being sent the last step, up to which their meshes count
// as switching.
func (p *pass) endSwitching() {
	if len(p.switched) == 0 {
		return
	}
	out := *p.r.last.Load()
	out.Switching = maps.Clone(out.Switching)
	for _, name := range p.switched {
		delete(out.Switching, name)
	}
	p.r.last.Store(&out)
}
