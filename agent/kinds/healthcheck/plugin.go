// Package healthcheck is the plugin of MeshHealthCheck: proxies that probe the endpoints of a service and leave out those
// that do not answer as they should.
//
// Its policies act on the clusters of outbounds. The protocol of the service picks the check: http for HTTP and HTTP/2,
// grpc for gRPC, tcp for the rest; where the first two are disabled, tcp stands in.
package healthcheck

import (
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/nearside-mesh/nearside/agent/draft"
	"github.com/nearside-mesh/nearside/agent/envoy/match"
	"github.com/nearside-mesh/nearside/agent/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/mesh"
	"github.com/nearside-mesh/nearside/agent/policy"
	"github.com/nearside-mesh/nearside/agent/resource"
)

const kind = "MeshHealthCheck"

// Plugin declares the kinds and their effect.
func Plugin() policy.Plugin {
	return policy.Plugin{
		Kinds: []resource.Descriptor{resource.PolicyDescriptor(kind, "meshhealthchecks", "mhc", resource.PolicyShape{
			Top:     toolkit.Proxies("MeshGateway"),
			To:      toolkit.Destinations(),
			NewConf: func() resource.Conf { return new(Conf) },
		})},
		Shapes: []match.Level{match.LevelCluster},
		Apply:  apply,
	}
}

func apply(c *policy.Context, d *draft.Draft) {
	k := c.Rules.Kind(kind)
	if k == nil {
		return
	}
	a := &applier{c: c, memo: map[probe]*corev3.HealthCheck{}}
	for cl := range toolkit.Clusters(d, draft.OutboundCluster) {
		if r := k.Outbound(cl.Service); r != nil {
			a.cluster(cl, r)
		}
	}
}

// applier makes probes, each once: many clusters share them and nobody changes them.
type applier struct {
	c    *policy.Context
	tags string // of the proxy, made when the first probe needs it
	memo map[probe]*corev3.HealthCheck
}

type probe struct {
	conf     *Conf
	protocol mesh.Protocol
}

func (a *applier) cluster(cl *draft.Cluster, r *policy.Rule) {
	conf := toolkit.Conf[Conf](r)
	if conf == nil {
		return
	}
	if conf.HealthyPanicThreshold != nil || conf.FailTrafficOnPanic != nil {
		a.panic(cl, conf, r)
	}
	key := probe{conf, mesh.Protocol(cl.Service.Protocol)}
	check, ok := a.memo[key]
	if !ok {
		if a.tags == "" {
			a.tags = mesh.TagString(a.c.View.ProxyTags(a.c.Dataplane))
		}
		var err error
		if check, err = checkOf(conf, key.protocol, a.tags); err != nil {
			toolkit.WarnStrongest(a.c, r, "eventLogPath: %v: endpoints are not probed", err)
		}
		a.memo[key] = check
	}
	if check != nil {
		cl.Message.HealthChecks = []*corev3.HealthCheck{check}
	}
}

// panic says what becomes of requests when too few endpoints are healthy.
func (a *applier) panic(cl *draft.Cluster, conf *Conf, r *policy.Rule) {
	lb := toolkit.EditLoadBalancing(cl.Message)
	// A MeshCircuitBreaker may have said it already.
	if lb.HealthyPanicThreshold == nil {
		lb.HealthyPanicThreshold = toolkit.Percent(conf.HealthyPanicThreshold)
	}
	if f := conf.FailTrafficOnPanic; f != nil {
		if lb.LocalityConfigSpecifier == nil {
			lb.LocalityConfigSpecifier = &clusterv3.Cluster_CommonLbConfig_ZoneAwareLbConfig_{ZoneAwareLbConfig: &clusterv3.Cluster_CommonLbConfig_ZoneAwareLbConfig{}}
		}
		if z := lb.GetZoneAwareLbConfig(); z != nil {
			z.FailTrafficOnPanic = *f
		} else if *f {
			toolkit.WarnStrongest(a.c, r, "failTrafficOnPanic does not go with weights of localities, which service %s has: it has no effect", cl.Service.Name)
		}
	}
}
