package accesslog

import (
	"cmp"

	"github.com/nearside-mesh/nearside/agent/resource"
)

// legacyPlan returns what a TrafficLog writes of the connections to a service; nil for nothing.
func (w *writer) legacyPlan(service string) *plan {
	res := w.c.Rules.LegacyOutbound(legacyKind, service)
	if res == nil {
		return nil
	}
	spec, ok := res.Spec.(*resource.LegacyPolicy)
	if !ok {
		return nil
	}
	logging := w.c.View.Spec.Logging
	name := logging.DefaultBackend
	if conf, ok := spec.Conf.(*LegacyConf); ok {
		name = cmp.Or(conf.Backend, name)
	}
	b := logging.Backend(name)
	if b == nil {
		if name != "" {
			w.c.Host.Warn(res.Key, "conf.backend: there is no backend %q in logging of mesh %s: nothing is logged by this policy", name, w.c.View.Name)
		} else {
			w.c.Host.Warn(res.Key, "the policy names no backend, and logging of mesh %s has no defaultBackend: nothing is logged by this policy", w.c.View.Name)
		}
		return nil
	}
	p, ok := w.legacy[b]
	if !ok {
		p = w.newPlan(res.Key, []sink{legacySink(b)}, nil)
		w.legacy[b] = p
	}
	return p
}
