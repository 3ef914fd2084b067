package reconcile

import (
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/agent/draft"
	"github.com/nearside-mesh/nearside/agent/envoy/finding"
	"github.com/nearside-mesh/nearside/agent/envoy/load"
	"github.com/nearside-mesh/nearside/agent/generate"
	"github.com/nearside-mesh/nearside/agent/inspect"
	"github.com/nearside-mesh/nearside/agent/node"
	"github.com/nearside-mesh/nearside/agent/resource"
	"github.com/nearside-mesh/nearside/agent/xds"
)

// CheckFunc says what the client of a proxy would make of its config, given what it has, as [xds.Proxy.Check] does.
type CheckFunc func(p *generate.Proxy, c *load.Checker, accepted *draft.Sealed) []finding.Finding

// verdict is what the check has said about a config. It stands until the proxy gets another config, or less is known of
// what its client has.
type verdict struct {
	of        *draft.Sealed
	Epochs    uint64
	refused   []xds.Refusal
	surprises []finding.Finding // at most maxProxySurprises
	more      int               // surprises beyond those
	failed    string            // why there is no verdict, "" when there is
}

// Bounds of what is told of surprises, which never keep a resource from being sent.
const (
	maxProxySurprises = 10
	maxSurprises      = 100
)

// check returns what of a proxy's config must not be sent. A config that was checked is not checked again.
func (p *pass) check(key node.Key, s *proxyState) []xds.Refusal {
	v := &s.verdict
	// The epoch is taken first: what is lost between the two is seen with the next pass.
	if epoch := p.r.o.Publisher.Epoch(key); v.of != s.proxy.Sealed || v.Epochs != epoch {
		if v.Epochs == epoch && p.r.stillFit(key, v, s.proxy) {
			v.of = s.proxy.Sealed
		} else {
			*v = p.r.judge(key, s.proxy)
			v.Epochs = epoch
		}
	}
	ref, _ := node.ParseRef(key.ID) // the proxy exists, so it can be read
	who := ref.Key()
	if v.failed != "" {
		p.problem(who, inspect.SeverityError, v.failed)
	}
	for i := range v.surprises {
		p.surprising(who, &v.surprises[i])
	}
	if v.more > 0 {
		p.problem(who, inspect.SeverityWarning, fmt.Sprintf("%d more places of its config work otherwise than they read", v.more))
	}
	return v.refused
}

// stillFit reports whether a verdict by which all was sent also stands for the next config.
func (r *Reconciler) stillFit(key node.Key, v *verdict, proxy *generate.Proxy) bool {
	about := func(f finding.Finding) bool { return f.Type == draft.TypeEndpoint }
	if v.of == nil || v.failed != "" || v.more > 0 || len(v.refused) > 0 || slices.ContainsFunc(v.surprises, about) {
		return false
	}
	fit, err := guard(r.o.Log, "check of the endpoints of proxy "+key.ID, func() (bool, error) { return proxy.StillFit(r.checker, v.of), nil })
	if err != nil {
		r.checker = &load.Checker{} // it may have been left half-changed
	}
	return fit
}

// judge checks a config against what the client has. One that cannot be checked is sent as it is.
func (r *Reconciler) judge(key node.Key, proxy *generate.Proxy) verdict {
	began := time.Now()
	v := verdict{of: proxy.Sealed}
	findings, err := guard(r.o.Log, "check of proxy "+key.ID, func() ([]finding.Finding, error) {
		return r.o.Check(proxy, r.checker, r.o.Publisher.Accepted(key)), nil
	})
	r.checkSeconds.Observe(time.Since(began).Seconds())
	if err != nil {
		r.checker = &load.Checker{} // it may have been left half-changed
		v.failed = fmt.Sprintf("its config could not be checked and is sent unchecked: %v", err)
		return v
	}
	v.refused = generate.Refusals(findings)
	for _, f := range findings {
		switch {
		case f.Severity != finding.Warning:
		case len(v.surprises) < maxProxySurprises:
			v.surprises = append(v.surprises, f)
		default:
			v.more++
		}
	}
	return v
}

// surprise is a finding that is alike on some proxies.
type surprise struct {
	who    resource.Key // the first of them
	reason string
	more   int // of them
}

// surprising takes note of a finding about a proxy.
func (p *pass) surprising(who resource.Key, f *finding.Finding) {
	kind, role := f.Type[strings.LastIndexByte(f.Type, '.')+1:], f.Resource
	// inbound:10.0.0.1:80 is inbound:80 of another proxy.
	first, _, _ := strings.Cut(role, ":")
	last := strings.LastIndexByte(role, ':')
	alike := f.Message
	if last > len(first) {
		alike = strings.ReplaceAll(alike, role[len(first)+1:last], "")
		role = first + role[last:]
	}
	id := fmt.Sprintf("%s\x00%d\x00%s\x00%s\x00%s\x00%s", who.Mesh, f.Rule, kind, role, f.Pointer, alike)
	if s := p.surprises[id]; s != nil {
		if s.who != who { // both flavors of a proxy
			s.more++
		}
		return
	}
	if p.surprises == nil {
		p.surprises = map[string]*surprise{}
	}
	p.surprises[id] = &surprise{who: who, reason: kind + " " + f.Resource + generate.FindingText(f)}
}

// tellSurprises makes problems of what was noted, one of what is alike.
func (p *pass) tellSurprises() {
	ids := slices.Sorted(maps.Keys(p.surprises))
	for _, id := range ids[:min(len(ids), maxSurprises)] {
		s := p.surprises[id]
		if s.more > 0 {
			s.reason += fmt.Sprintf("; so it is with %d more proxies", s.more)
		}
		p.problem(s.who, inspect.SeverityWarning, s.reason)
	}
	if more := len(ids) - maxSurprises; more > 0 {
		p.problem(p.surprises[ids[maxSurprises]].who, inspect.SeverityWarning, fmt.Sprintf("%d more places of configs, here and on other proxies, work otherwise than they read", more))
	}
}

// defectError is a panic in a pure function: a defect of the agent that one input brought to light.
type defectError struct{ what any }

func (e *defectError) Error() string {
	return fmt.Sprintf("a defect of the agent: %v; its log has the place, please report it", e.what)
}

// guard calls f and turns a panic into an error, so that one mesh or proxy never harms another.
func guard[T any](log *slog.Logger, what string, f func() (T, error)) (out T, err error) {
	defer func() {
		if v := recover(); v != nil {
			log.Error("a defect was met; what it concerns keeps its last state", "at", what, "panic", v, "stack", string(debug.Stack()))
			var none T
			out, err = none, &defectError{v}
		}
	}()
	return f()
}
