package reconcile

import (
	"fmt"
	"maps"

	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Logs makes ready what the loggers of Envoys write to. It is called by the goroutine that runs the
// passes.
type Logs interface {
	// Prepare is told what the config of a node's client writes to, before the config is published,
	// and returns why some of it is not ready, by the ID of the pipe. It waits but a moment: what
	// takes longer is not ready yet. Who answers asks for another pass when something has changed.
	Prepare(key node.Key, pipes []draft.Pipe) map[string]string
	// Left says that a node has no config any more.
	Left(key node.Key)
}

// cut is a config without the loggers that cannot be used.
type cut struct {
	of      *generate.Proxy
	missing map[string]string // by the ID of the pipe
	made    *generate.Proxy
}

// logs returns what is published of a config that was found fit: all of it, but for loggers that
// would stop the Envoy or be rejected, since what they write to cannot be made ready.
func (p *pass) logs(key node.Key, who resource.Key, s *proxyState) *generate.Proxy {
	proxy := s.verdict.publish
	if p.r.o.Logs == nil || key.Flavor == node.FlavorGRPC {
		return proxy
	}
	missing := p.r.o.Logs.Prepare(key, proxy.Sealed.Pipes)
	if len(missing) == 0 {
		s.cut = cut{}
		return proxy
	}
	for i := range proxy.Sealed.Pipes {
		pipe := &proxy.Sealed.Pipes[i]
		if why, is := missing[pipe.ID()]; is {
			s.problem(who, api.SeverityWarning, missingText(pipe, why))
		}
	}
	if s.cut.of == proxy && maps.Equal(s.cut.missing, missing) {
		return s.cut.made
	}
	made := *proxy
	sealed, err := guard(p.r.o.Log, "loggers of proxy "+key.ID, func() (*draft.Sealed, error) {
		return proxy.Sealed.Without(func(id string) bool { return missing[id] != "" }), nil
	})
	if err != nil { // nothing of it is published rather than a logger that stops the Envoy
		s.problem(who, api.SeverityError,
			fmt.Sprintf("its access logs could not be left out, the proxy keeps what it has: %v", err))
		return nil
	}
	made.Sealed = sealed
	s.cut = cut{of: proxy, missing: missing, made: &made}
	return &made
}

// missingText says what follows from a pipe that is not ready.
func missingText(pipe *draft.Pipe, why string) string {
	if pipe.Kind == draft.PipeOTLP {
		return fmt.Sprintf("the records of %s for %s go from Envoy to the collector without the agent, "+
			"and are lost while it is away: %s", pipe.Policy, clip.Value(pipe.Target), why)
	}
	return fmt.Sprintf("the access log of %s to %s %s is left out: %s",
		pipe.Policy, pipe.Kind, clip.Value(pipe.Target), why)
}
