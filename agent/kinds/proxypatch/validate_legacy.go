package proxypatch

import (
	"fmt"
	"slices"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/nearside-mesh/nearside/agent/policy"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// defaultProfile stands for what the agent generates for a proxy.
const defaultProfile = "default-proxy"

// otherProfiles are for proxies that this agent does not serve.
var otherProfiles = []string{"gateway-proxy", "ingress-proxy", "egress-proxy"}

// Validate reads all resources and values, and reports what is wrong with them.
func (c *LegacyConf) Validate(v *resource.Validator) {
	for i, p := range c.Imports {
		v.Field("imports").Index(i).OneOf(p, append([]string{defaultProfile}, otherProfiles...)...)
	}
	for i := range c.Resources {
		r := &c.Resources[i]
		r.change = r.read(v.Field("resources").Index(i), fmt.Sprintf("conf.resources[%d]", i))
	}
	for i := range c.Modifications {
		m := &c.Modifications[i]
		m.change = theOne(v.Field("modifications").Index(i), []written{
			writtenLegacy(clusters, m.Cluster), writtenLegacy(listeners, m.Listener), writtenLegacy(networkFilters, m.NetworkFilter),
			writtenLegacy(httpFilters, m.HTTPFilter), writtenLegacy(virtualHosts, m.VirtualHost),
		}, fmt.Sprintf("conf.modifications[%d]", i))
	}
}

func writtenLegacy[M matcher](t target, m *LegacyMod[M]) written {
	if m == nil {
		return written{target: t}
	}
	w := written{given: true, legacy: true, target: t, op: m.Operation, value: unlessEmpty(m.Value)}
	if m.Match != nil {
		w.matched, w.match = true, (*m.Match).match()
	}
	return w
}

// read reads a whole resource.
func (r *LegacyResource) read(v *resource.Validator, at string) *change {
	if r.Name == "" {
		v.Field("name").Faultf("the name is missing: give that of the resource")
	}
	if r.Version == "" {
		v.Field("version").Faultf("the version is missing")
	}
	body := v.Field("resource")
	if r.Resource == "" {
		body.Faultf("the resource is missing: give YAML or JSON of an Envoy message with %s", typeKey)
		return nil
	}
	a := &anypb.Any{}
	p, _, ok := parse(body, r.Resource, a, false)
	if !ok {
		return nil
	}
	m, err := a.UnmarshalNew()
	if err != nil {
		body.Faultf("%s", plainError(err))
		return nil
	}
	c := &change{op: Add, at: at, raw: true, target: resources}
	switch m.(type) {
	case *clusterv3.Cluster:
		c.target = clusters
	case *listenerv3.Listener:
		c.target = listeners
	case *routev3.RouteConfiguration, *endpointv3.ClusterLoadAssignment, *tlsv3.Secret:
	default:
		body.Field(typeKey).Faultf("a %s is no resource that a proxy asks for: give a Cluster, Listener, RouteConfiguration, ClusterLoadAssignment or Secret", m.ProtoReflect().Descriptor().FullName())
		return nil
	}
	if p.message = m; !fits(body, m) {
		return nil
	}
	if name := nameOf(m); r.Name != "" && name != r.Name {
		v.Field("name").Faultf("%q is not the name in the resource, %q: give the same", clip(r.Name), clip(name))
		return nil
	}
	c.value = p
	return c
}

// changes returns what the modifications want.
func (c *Conf) changes() []*change {
	out := make([]*change, 0, len(c.AppendModifications))
	for i := range c.AppendModifications {
		if ch := c.AppendModifications[i].change; ch != nil {
			out = append(out, ch)
		}
	}
	return out
}

// changes returns what the resources and modifications want.
func (c *LegacyConf) changes() []*change {
	out := make([]*change, 0, len(c.Resources)+len(c.Modifications))
	for i := range c.Resources {
		if ch := c.Resources[i].change; ch != nil {
			out = append(out, ch)
		}
	}
	for i := range c.Modifications {
		if ch := c.Modifications[i].change; ch != nil {
			out = append(out, ch)
		}
	}
	return out
}

// warn says which parts of a template have another effect than one may think.
func (c *LegacyConf) warn(ctx *policy.Context, r *resource.Resource) {
	if !slices.Contains(c.Imports, defaultProfile) {
		ctx.Host.Warn(r.Key, "conf.imports does not name %s: the proxy has nothing but what this policy adds", defaultProfile)
	}
	for _, p := range c.Imports {
		if slices.Contains(otherProfiles, p) {
			ctx.Host.Warn(r.Key, "conf.imports: %s has no effect: this agent serves proxies beside workloads (%s) alone, not %s",
				p, defaultProfile, strings.Join(otherProfiles, ", "))
		}
	}
}
