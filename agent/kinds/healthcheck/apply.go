package healthcheck

import (
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"

	"github.com/nearside-mesh/nearside/agent/draft"
	"github.com/nearside-mesh/nearside/agent/mesh"
	"github.com/nearside-mesh/nearside/agent/policy"
)

func apply(c *policy.Context, d *draft.Draft) {
	k := c.Rules.Kind(kind)
	if k == nil {
		return
	}
	a := &applier{c: c, made: map[made]*corev3.HealthCheck{}}
	for _, cl := range d.Clusters {
		if cl.Kind != draft.OutboundCluster {
			continue
		}
		if r := k.Outbound(cl.Service); r != nil {
			a.cluster(cl, r)
		}
	}
}

// applier makes probes, each once: many clusters share them and nobody changes them.
type applier struct {
	c    *policy.Context
	tags string // of the proxy, made when the first probe needs it
	made map[made]*corev3.HealthCheck
}

type made struct {
	conf     *Conf
	protocol mesh.Protocol
}

func (a *applier) cluster(cl *draft.Cluster, r *policy.Rule) {
	conf, ok := r.Conf.(*Conf)
	if !ok {
		return
	}
	if conf.HealthyPanicThreshold != nil || conf.FailTrafficOnPanic != nil {
		a.panic(cl, conf, r)
	}
	key := made{conf, mesh.Protocol(cl.Service.Protocol)}
	check, ok := a.made[key]
	if !ok {
		if a.tags == "" {
			a.tags = mesh.TagString(a.c.View.ProxyTags(a.c.Dataplane))
		}
		var err error
		if check, err = checkOf(conf, key.protocol, a.tags); err != nil {
			a.warn(r, "eventLogPath: %v: endpoints are not probed", err)
		}
		a.made[key] = check
	}
	if check != nil {
		cl.Message.HealthChecks = []*corev3.HealthCheck{check}
	}
}

// panic says what becomes of requests when too few endpoints are healthy. What stands there may be shared, so it is
// replaced.
func (a *applier) panic(cl *draft.Cluster, conf *Conf, r *policy.Rule) {
	lb := &clusterv3.Cluster_CommonLbConfig{}
	if cl.Message.CommonLbConfig != nil {
		lb = proto.Clone(cl.Message.CommonLbConfig).(*clusterv3.Cluster_CommonLbConfig)
	}
	// A MeshCircuitBreaker may have said it already.
	if p := conf.HealthyPanicThreshold; p != nil && lb.HealthyPanicThreshold == nil {
		lb.HealthyPanicThreshold = &typev3.Percent{Value: p.Float()}
	}
	if f := conf.FailTrafficOnPanic; f != nil {
		if lb.LocalityConfigSpecifier == nil {
			lb.LocalityConfigSpecifier = &clusterv3.Cluster_CommonLbConfig_ZoneAwareLbConfig_{ZoneAwareLbConfig: &clusterv3.Cluster_CommonLbConfig_ZoneAwareLbConfig{}}
		}
		if z := lb.GetZoneAwareLbConfig(); z != nil {
			z.FailTrafficOnPanic = *f
		} else if *f {
			a.warn(r, "failTrafficOnPanic does not go with weights of localities, which service %s has: it has no effect", cl.Service.Name)
		}
	}
	cl.Message.CommonLbConfig = lb
}

// warn tells the strongest policy of a rule.
func (a *applier) warn(r *policy.Rule, format string, args ...any) {
	if n := len(r.Origins); n > 0 {
		a.c.Host.Warn(r.Origins[n-1].Policy.Key, format, args...)
	}
}
