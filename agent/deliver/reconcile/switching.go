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
	step := func(what string) string { return p.step(m.Key, fmt.Sprintf(format, p.r.o.Hold, what)) }
	if s.phase == target && s.done.Before(s.since) {
		step("the last step is being sent to proxies")
		p.switched = append(p.switched, m.Key)
	}
	if s.phase != target {
		p.stepDue(s.since, s.done)
		p.problem(m.Key, api.SeverityWarning, step([...]string{
			phaseOff: "inbounds will accept it next", phaseInbounds: "inbounds accept it, and proxies still send plain text",
			phaseClients: "proxies use it, and inbounds still accept plain text", phaseOn: "proxies use it",
		}[s.phase]))
	}
	if s.phase == target {
		return nil
	}
	if s.of != spec { // a new step resets it
		s.of, s.spec = spec, inPhase(s.phase, spec, s.mtls)
	}
	return &mesh.Transition{Spec: s.spec, Both: s.phase == phaseInbounds || s.phase == phaseClients,
		PlainClients: s.phase == phaseInbounds}
}

// inPhase returns a Mesh with mutual TLS as in a phase. mtls is its last enabled configuration.
func inPhase(phase int, spec *resource.Mesh, mtls *resource.MTLS) *resource.Mesh {
	out := *spec
	if phase == phaseOff {
		out.MTLS = nil
		return &out
	}
	with := *mtls
	if phase == phaseOn {
		out.MTLS = &with
		return &out
	}
	with.Backends = slices.Clone(mtls.Backends)
	for i := range with.Backends {
		with.Backends[i].Mode = resource.ModePermissive
	}
	out.MTLS = &with
	return &out
}

// step records and returns the current step of a change; see [status.Result].
func (p *pass) step(key resource.Key, what string) string {
	if p.switching == nil {
		p.switching = map[resource.Key]string{}
	}
	p.switching[key] = what
	return what
}

// stepDue schedules a pass for the next step, o.Hold after all proxies were updated for this one.
func (p *pass) stepDue(since, done time.Time) {
	if due := done.Add(p.r.o.Hold); !done.Before(since) && (p.switchAt.IsZero() || due.Before(p.switchAt)) {
		p.switchAt = due
	}
}

// endSteps records that all proxies were updated for the current steps of their meshes.
func (p *pass) endSteps() {
	now := p.r.o.Now()
	end := func(key resource.Key, since time.Time, done *time.Time) {
		if !done.Before(since) {
			return
		}
		*done = now
		if p.switching[key] != "" && !slices.Contains(p.switched, key) {
			p.stepDue(since, now)
		}
	}
	for name, s := range p.r.switching {
		end(meshKey(name), s.since, &s.done)
	}
	for name, s := range p.r.tls {
		end(s.key(name), s.since, &s.done)
	}
}

// endSwitching removes steps from the result that were the last and have been sent to proxies.
func (p *pass) endSwitching() {
	if len(p.switched) == 0 {
		return
	}
	out := *p.r.last.Load()
	out.Switching = maps.Clone(out.Switching)
	for _, key := range p.switched {
		delete(out.Switching, key)
	}
	p.r.last.Store(&out)
}
