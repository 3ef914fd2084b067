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

// Phases of enabling mutual TLS in a mesh; disabling it uses the reverse order. Each phase is
// compatible with the adjacent ones, so proxies need not change at the same time.
const (
	phaseOff      = iota // no TLS
	phaseInbounds        // inbounds accept TLS and plain text, clients send plain text
	phaseClients         // inbounds accept both, clients send TLS
	phaseOn              // the configured state
)

// switching is the state of mutual TLS in one mesh.
type switching struct {
	phase int
	since time.Time
	done  time.Time      // when all proxies were updated for a phase; valid if not before since
	mtls  *resource.MTLS // last enabled configuration of the Mesh
	// Result of the phase for the Mesh of.
	of, spec *resource.Mesh
}

// transition returns the current transition of mutual TLS in a mesh, or nil if there is none. There
// is none for a new mesh, or while no proxy is connected.
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
	const format = "mutual TLS is being switched in steps of %s, so that no connection is lost: %s"
	step := func(what string) string {
		if p.switching == nil {
			p.switching = map[string]string{}
		}
		p.switching[m.Name] = fmt.Sprintf(format, p.r.o.Hold, what)
		return p.switching[m.Name]
	}
	if s.phase == target && s.done.Before(s.since) {
		step("the last step is being sent to proxies")
		p.switched = append(p.switched, m.Name)
	}
	if s.phase != target {
		p.stepDue(s)
		p.problem(m.Key, api.SeverityWarning, step([...]string{
			phaseOff: "inbounds will accept it next", phaseInbounds: "inbounds accept it, and proxies still send plain text",
			phaseClients: "proxies use it, and inbounds still accept plain text", phaseOn: "proxies use it",
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

// permissive returns a Mesh with mutual TLS that also accepts plain text.
func permissive(spec *resource.Mesh, mtls *resource.MTLS) *resource.Mesh {
	out, with := *spec, *mtls
	with.Backends = slices.Clone(mtls.Backends)
	for i := range with.Backends {
		with.Backends[i].Mode = resource.ModePermissive
	}
	out.MTLS = &with
	return &out
}

// stepDue schedules a pass for the next step, o.Hold after all proxies were updated for this one.
func (p *pass) stepDue(s *switching) {
	if due := s.done.Add(p.r.o.Hold); !s.done.Before(s.since) && (p.switchAt.IsZero() || due.Before(p.switchAt)) {
		p.switchAt = due
	}
}

// endSteps records that all proxies were updated for the current steps of their meshes.
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

// endSwitching removes meshes from the result whose last step has been sent to proxies.
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
