// Package legacy is TrafficLog, which MeshAccessLog replaces: its conf, its effect and its migration.
//
// Its policies name a backend of Mesh.logging, which writes the connections and requests that leave the proxy.
package legacy

import (
	"cmp"

	"github.com/nearside-mesh/nearside/agent/draft"
	"github.com/nearside-mesh/nearside/agent/kinds/accesslog"
	"github.com/nearside-mesh/nearside/agent/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/policy"
	"github.com/nearside-mesh/nearside/agent/resource"
)

const kind = "TrafficLog"

// Conf is the conf of a TrafficLog.
type Conf struct {
	Backend string `json:"backend,omitempty"` // of Mesh.logging; "" for its default
}

// Validate accepts any name: which backends there are is for the Mesh to say.
func (c *Conf) Validate(*resource.Validator) {}

// Kind declares the kind and its effect.
func Kind() policy.LegacyKind {
	return policy.LegacyKind{
		Descriptor: resource.LegacyDescriptor(kind, "traffic-logs", "", resource.LegacyShape{
			NewConf: func() resource.Conf { return new(Conf) },
		}),
		ReplacedBy: []string{accesslog.Kind},
		Apply:      apply,
		Migrate:    migrate,
	}
}

func apply(c *policy.Context, d *draft.Draft) {
	if !acts(c) {
		return
	}
	accesslog.LogServices(c, d, func(service string) (resource.Key, *resource.LoggingBackend) {
		p := c.Rules.LegacyOutbound(kind, service)
		if p == nil {
			return resource.Key{}, nil
		}
		b, name := backendOf(c.View.Spec.Logging, p)
		switch {
		case b != nil:
		case name == "":
			c.Host.Warn(p.Key, "the policy names no backend, and logging of mesh %s has no defaultBackend: nothing is logged by this policy", c.View.Name)
		default:
			c.Host.Warn(p.Key, "conf.backend: there is no backend %q in logging of mesh %s: nothing is logged by this policy", name, c.View.Name)
		}
		return p.Key, b
	})
}

// acts reports whether policies of this kind may act on the proxy.
func acts(c *policy.Context) bool {
	return c.Rules.Kind(accesslog.Kind) == nil && c.Rules.Legacy(kind)
}

// backendOf returns the backend that a policy names, nil when there is none, and its name, "" for none.
func backendOf(l *resource.Logging, p *resource.Resource) (*resource.LoggingBackend, string) {
	name := ""
	if l != nil {
		name = l.DefaultBackend
	}
	if conf := toolkit.LegacyConf[Conf](p); conf != nil {
		name = cmp.Or(conf.Backend, name)
	}
	return l.Backend(name), name
}
