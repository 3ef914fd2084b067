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
	p, ok := w.legacy[res]
	if !ok {
		p = w.newLegacyPlan(res)
		w.legacy[res] = p
	}
	return p
}

func (w *writer) newLegacyPlan(res *resource.Resource) *plan {
	spec, ok := res.Spec.(*resource.LegacyPolicy)
	if !ok {
		return nil
	}
	name := ""
	if l := w.c.View.Spec.Logging; l != nil {
		name = l.DefaultBackend
	}
	if conf, ok := spec.Conf.(*LegacyConf); ok {
		name = cmp.Or(conf.Backend, name)
	}
	b := w.c.View.Spec.Logging.Backend(name)
	switch {
	case b != nil:
		return w.newPlan(res.Key, []sink{legacySink(b)}, nil)
	case name == "":
		w.c.Host.Warn(res.Key, "the policy names no backend, and logging of mesh %s has no defaultBackend: nothing is logged by this policy", w.c.View.Name)
	default:
		w.c.Host.Warn(res.Key, "conf.backend: there is no backend %q in logging of mesh %s: nothing is logged by this policy", name, w.c.View.Name)
	}
	return nil
}
