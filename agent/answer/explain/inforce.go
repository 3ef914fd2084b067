package explain

import (
	"slices"
	"strconv"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	filelogv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/file/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/protobuf/proto"

	"github.com/nearside-mesh/nearside/agent/compute/envoy"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// ProxyInForce returns settings that apply to a whole dataplane, in the order in which the kinds
// are applied. It is pure. It returns a *generate.NotFoundError if the mesh has no such dataplane.
func ProxyInForce(m *generate.Mesh, name string) ([]api.InForce, error) {
	dp := m.View.Dataplane(name)
	if dp == nil {
		return nil, &generate.NotFoundError{Mesh: m.View.Name, Name: name}
	}
	spec, ok := dp.Spec.(*resource.Dataplane)
	if !ok || m.Policies == nil {
		return nil, nil
	}
	c := (&policy.Context{View: m.View, Rules: m.Policies.Rules(dp)}).WithDataplane(dp, spec)
	var out []api.InForce
	var logs map[string][]api.FlowLog
	for i := range m.Policies.Plugins {
		ask := m.Policies.Plugins[i].InForce
		if ask == nil {
			continue
		}
		found := ask(c)
		if found == nil {
			continue
		}
		one := api.InForce{Type: found.Kind, Mode: found.Mode, Decides: writtenIn(found.Decides),
			Permits: make([]api.Permit, 0, len(found.Permits))}
		if logs == nil && len(found.Permits) > 0 {
			logs = map[string][]api.FlowLog{} // empty if generation fails, which other views report
			if config, err := generate.Generate(generate.Input{Mesh: m, Name: name, Flavor: node.FlavorEnvoy}, nil,
				nil); err == nil {
				logs = logsByCluster(config)
			}
		}
		for j := range found.Permits {
			p := &found.Permits[j]
			permit := api.Permit{
				Protocol: p.Protocol, Value: p.Value, Port: p.Port, Cluster: p.Cluster, Pinned: p.Pinned, Reaches: p.Reaches,
				IPv4: p.IPv4, IPv6: p.IPv6, AccessLogs: []api.FlowLog{}, Policies: []api.FlowPolicy{},
			}
			permit.AccessLogs = append(permit.AccessLogs, logs[p.Cluster]...)
			for _, w := range p.Sources {
				permit.Policies = append(permit.Policies, writtenIn(w))
			}
			one.Permits = append(one.Permits, permit)
		}
		out = append(out, one)
	}
	return out, nil
}

func writtenIn(w policy.FieldRef) api.FlowPolicy {
	return api.FlowPolicy{Ref: api.RefOf(w.Resource), Field: w.Field}
}

// logsByCluster lists the access logs of a config by the clusters whose traffic they log, as far as
// listeners name the clusters. If several logs of a cluster have the same sink, only the first is
// listed.
func logsByCluster(config *generate.Proxy) map[string][]api.FlowLog {
	l := loggedBy{}
	snapshot := config.Snapshot()
	routes := func(name string) *routev3.RouteConfiguration {
		m := &routev3.RouteConfiguration{}
		if r := snapshot.Find(envoy.KindRoute, name); r == nil || proto.Unmarshal(r.Body(), m) != nil {
			return nil
		}
		return m
	}
	for _, r := range snapshot[envoy.KindListener] {
		m := &listenerv3.Listener{}
		if proto.Unmarshal(r.Body(), m) != nil {
			continue
		}
		own := logsOf(nil, m.GetAccessLog(), r.Name, "/accessLog/")
		for i, c := range m.GetFilterChains() {
			l.chain(c, routes, own, r.Name, "/filterChains/"+strconv.Itoa(i))
		}
		if c := m.GetDefaultFilterChain(); c != nil {
			l.chain(c, routes, own, r.Name, "/defaultFilterChain")
		}
	}
	return l
}

type loggedBy map[string][]api.FlowLog

// chain adds the logs of a filter chain. routes returns the RDS route configuration with a name.
func (l loggedBy) chain(c *listenerv3.FilterChain, routes func(string) *routev3.RouteConfiguration, logs []api.FlowLog,
	listener, at string) {
	for i, f := range c.GetFilters() {
		config := f.GetTypedConfig()
		inside := at + "/filters/" + strconv.Itoa(i) + "/typedConfig/accessLog/"
		var tcp tcpv3.TcpProxy
		var http hcmv3.HttpConnectionManager
		switch {
		case config.MessageIs(&tcp) && config.UnmarshalTo(&tcp) == nil:
			all := logsOf(logs, tcp.GetAccessLog(), listener, inside)
			l.add(tcp.GetCluster(), all)
			for _, w := range tcp.GetWeightedClusters().GetClusters() {
				l.add(w.GetName(), all)
			}
		case config.MessageIs(&http) && config.UnmarshalTo(&http) == nil:
			all := logsOf(logs, http.GetAccessLog(), listener, inside)
			served := http.GetRouteConfig()
			if rds := http.GetRds(); rds != nil {
				served = routes(rds.GetRouteConfigName())
			}
			for _, h := range served.GetVirtualHosts() {
				for _, r := range h.GetRoutes() {
					l.route(r.GetRoute(), all)
				}
			}
		}
	}
}

func (l loggedBy) route(a *routev3.RouteAction, logs []api.FlowLog) {
	l.add(a.GetCluster(), logs)
	for _, w := range a.GetWeightedClusters().GetClusters() {
		l.add(w.GetName(), logs)
	}
}

func (l loggedBy) add(cluster string, logs []api.FlowLog) {
	if cluster == "" {
		return
	}
	for _, log := range logs {
		if !slices.ContainsFunc(l[cluster], func(o api.FlowLog) bool { return o.Sink == log.Sink }) {
			l[cluster] = append(l[cluster], log)
		}
	}
}

// logsOf appends access logs to those of the enclosing scope.
func logsOf(around []api.FlowLog, list []*accesslogv3.AccessLog, listener, at string) []api.FlowLog {
	out := slices.Clip(around)
	for i, a := range list {
		log := api.FlowLog{Listener: listener, Pointer: at + strconv.Itoa(i), Name: a.GetName(), Sink: a.GetName(),
			Conditional: a.GetFilter() != nil}
		var file filelogv3.FileAccessLog
		if c := a.GetTypedConfig(); c.MessageIs(&file) && c.UnmarshalTo(&file) == nil {
			log.Sink = file.GetPath()
		}
		out = append(out, log)
	}
	return out
}
