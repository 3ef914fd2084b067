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

	"github.com/nearside-mesh/nearside/agent/envoy"
	"github.com/nearside-mesh/nearside/agent/generate"
)

// LogsByCluster lists the access logs of a config under the clusters whose connections and requests they tell of, as
// far as these are named in listeners. Of the logs of one cluster that go to the same sink the first is listed.
func LogsByCluster(config *generate.Proxy) map[string][]FlowLog {
	l := loggedBy{}
	for _, r := range config.Snapshot()[envoy.KindListener] {
		m := &listenerv3.Listener{}
		if proto.Unmarshal(r.Body, m) != nil {
			continue
		}
		own := logsOf(nil, m.GetAccessLog(), r.Name, "/accessLog/")
		for i, c := range m.GetFilterChains() {
			l.chain(c, own, r.Name, "/filterChains/"+strconv.Itoa(i))
		}
		if c := m.GetDefaultFilterChain(); c != nil {
			l.chain(c, own, r.Name, "/defaultFilterChain")
		}
	}
	return l
}

type loggedBy map[string][]FlowLog

func (l loggedBy) chain(c *listenerv3.FilterChain, logs []FlowLog, listener, at string) {
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
			for _, h := range http.GetRouteConfig().GetVirtualHosts() {
				for _, r := range h.GetRoutes() {
					l.route(r.GetRoute(), all)
				}
			}
		}
	}
}

func (l loggedBy) route(a *routev3.RouteAction, logs []FlowLog) {
	l.add(a.GetCluster(), logs)
	for _, w := range a.GetWeightedClusters().GetClusters() {
		l.add(w.GetName(), logs)
	}
}

func (l loggedBy) add(cluster string, logs []FlowLog) {
	if cluster == "" {
		return
	}
	for _, log := range logs {
		if !slices.ContainsFunc(l[cluster], func(o FlowLog) bool { return o.Sink == log.Sink }) {
			l[cluster] = append(l[cluster], log)
		}
	}
}

// logsOf adds access logs to those around them.
func logsOf(around []FlowLog, list []*accesslogv3.AccessLog, listener, at string) []FlowLog {
	out := slices.Clip(around)
	for i, a := range list {
		log := FlowLog{Listener: listener, Pointer: at + strconv.Itoa(i), Name: a.GetName(), Sink: a.GetName(), Conditional: a.GetFilter() != nil}
		var file filelogv3.FileAccessLog
		if c := a.GetTypedConfig(); c.MessageIs(&file) && c.UnmarshalTo(&file) == nil {
			log.Sink = file.GetPath()
		}
		out = append(out, log)
	}
	return out
}
