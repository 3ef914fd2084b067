package reconcile

import (
	"fmt"
	"maps"

	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/envoy"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/deliver/status"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Logs prepares the destinations of Envoy's loggers. Only the goroutine that runs the passes calls
// it.
type Logs interface {
	// Prepare receives the log destinations of a node's config before the config is published. It
	// returns why some are not ready, by pipe ID. It does not block for long: if wait is true, the
	// config must not be published yet. The implementation requests another pass when something has
	// changed.
	Prepare(key node.Key, pipes []draft.Pipe) (missing map[string]status.Missing, wait bool)
	// Unlogged receives the listeners of a node's config that is about to be published without their
	// loggers, with the reasons by name; empty: all listeners have them. old returns whether the
	// client already has a listener with this name.
	Unlogged(key node.Key, listeners map[string]string, old func(name string) bool)
	// Left means that a node no longer has a config.
	Left(key node.Key)
}

// reduced is a config without loggers whose destination is not ready.
type reduced struct {
	of      *generate.Proxy
	missing map[string]status.Missing // by pipe ID
	config  *generate.Proxy
}

// writesFile reports whether Envoy writes the file of a pipe.
func (r *reduced) writesFile(id string) bool { return r.missing[id].EnvoyWrites }

// logs returns the config to publish: the checked config without loggers that would block the Envoy
// or be rejected, because their destination is not ready. While a config waits for its loggers, it
// returns the last published config.
func (p *pass) logs(key node.Key, owner resource.Key, s *proxyState) *generate.Proxy {
	s.leftOut, s.waiting = nil, false
	proxy := s.verdict.publish
	if p.r.o.Logs == nil || key.Flavor == node.FlavorGRPC {
		return proxy
	}
	missing, wait := p.r.o.Logs.Prepare(key, proxy.Sealed.Pipes)
	if wait {
		s.waiting = true
		for i := range proxy.Sealed.Pipes {
			s.addLeftOut(&proxy.Sealed.Pipes[i], missing)
		}
		return s.sent
	}
	if len(missing) == 0 {
		s.reduced = reduced{}
		p.r.o.Logs.Unlogged(key, nil, nil)
		return proxy
	}
	for i := range proxy.Sealed.Pipes {
		pipe := &proxy.Sealed.Pipes[i]
		if why, is := missing[pipe.ID()]; is {
			s.problem(owner, api.SeverityWarning, missingText(pipe, why))
			s.addLeftOut(pipe, missing)
		}
	}
	if s.reduced.of == proxy && maps.Equal(s.reduced.missing, missing) {
		p.unlogged(key, s, proxy)
		return s.reduced.config
	}
	config := *proxy
	s.reduced = reduced{of: proxy, missing: missing, config: &config}
	sealed, err := guard(p.r.o.Log, "loggers of proxy "+key.ID, func() (*draft.Sealed, error) {
		return proxy.Sealed.Without(func(id string) bool { _, is := missing[id]; return is }, s.reduced.writesFile), nil
	})
	if err != nil { // rather publish nothing than a logger that blocks the Envoy
		s.reduced = reduced{}
		s.problem(owner, api.SeverityError,
			fmt.Sprintf("its access logs cannot be disabled, so the proxy keeps its current config: %v", err))
		return nil
	}
	config.Sealed = sealed
	p.unlogged(key, s, proxy)
	return &config
}

// unlogged reports the listeners that the reduced config has without their loggers, except those
// whose files Envoy writes.
func (p *pass) unlogged(key node.Key, s *proxyState, whole *generate.Proxy) {
	without := map[string]string{}
	var full, less draft.Lists
	if len(s.leftOut) > 0 {
		full = whole.Sealed.Without(s.reduced.writesFile, s.reduced.writesFile).Resources
		less = s.reduced.config.Sealed.Resources
	}
	for _, l := range less[draft.RankListener] {
		if r := draft.Find(full[draft.RankListener], l.Name); r != nil && r.Version != l.Version {
			without[l.Name] = whyWithout(r, whole.Sealed.Pipes, s.reduced.missing)
		}
	}
	had := p.r.o.Publisher.Listeners(key)
	p.r.o.Logs.Unlogged(key, without, func(name string) bool { return draft.Find(had, name) != nil })
}

// whyWithout returns why a listener lacks loggers: the first of its pipes that is left out, and the
// reason.
func whyWithout(listener *draft.Resource, pipes []draft.Pipe, missing map[string]status.Missing) string {
	used := envoy.LogTargets([]*draft.Resource{listener})
	for i := range pipes {
		if !used[pipes[i].ID()] {
			continue
		}
		if out, is := leftOutOf(&pipes[i], missing); is {
			return out.What + ": " + out.Reason
		}
	}
	return status.NotReady
}

// addLeftOut records that a logger is missing.
func (s *proxyState) addLeftOut(pipe *draft.Pipe, missing map[string]status.Missing) {
	if out, is := leftOutOf(pipe, missing); is {
		s.leftOut = append(s.leftOut, out)
	}
}

// leftOutOf returns why the lines of a pipe are in no log. Envoy sends OpenTelemetry records
// directly, and may write a file itself.
func leftOutOf(pipe *draft.Pipe, missing map[string]status.Missing) (out status.LeftOut, is bool) {
	why, is := missing[pipe.ID()]
	if !is || pipe.Kind == draft.PipeOTLP || why.EnvoyWrites {
		return out, false
	}
	return status.LeftOut{Policy: pipe.Policy, What: string(pipe.Kind) + " " + clip.Value(pipe.Target),
		Reason: why.Reason}, true
}

// missingText describes the effect of a destination that is not ready.
func missingText(pipe *draft.Pipe, why status.Missing) string {
	if pipe.Kind == draft.PipeOTLP {
		return fmt.Sprintf("Envoy sends the records of %s for %s directly to the collector, "+
			"so they are lost while it is unavailable: %s", pipe.Policy, clip.Value(pipe.Target), why.Reason)
	}
	if why.EnvoyWrites {
		return fmt.Sprintf("the access log of %s to %s grows without limit: its Envoy writes the file itself, without "+
			"rotation: %s", pipe.Policy, clip.Value(pipe.Target), why.Reason)
	}
	return fmt.Sprintf("the access log of %s to %s %s is disabled: %s",
		pipe.Policy, pipe.Kind, clip.Value(pipe.Target), why.Reason)
}
