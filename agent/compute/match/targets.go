package match

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filelogv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/file/v3"

	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/compute/envoy"
	"github.com/nearside-mesh/nearside/agent/model/finding"
)

// maxEndpoints is the maximum number of listed endpoints of a target.
const maxEndpoints = 64

// forward records the clusters that may receive the connection or request.
func (w *walk) forward(clusters []WeightedCluster, total uint64) *Trace {
	reason := "no cluster receives traffic"
	for _, c := range clusters {
		t := Target{Cluster: c.Name, Weight: c.Weight, Total: uint32(min(total, 1<<32-1))}
		why := w.fill(&t)
		step := Step{Level: LevelCluster, Choice: c.Name, Place: t.Place}
		if why != "" {
			step.note("%s", why)
			reason = why
		} else if m := w.config.cluster(c.Name); m != nil {
			w.effect(EffectTimeout, 100, 0, "connecting to cluster %s may take %s",
				clip.Value(c.Name), timeText(durationOr(m.GetConnectTimeout(), connectTimeout)))
		}
		w.step(step)
		w.trace.Targets = append(w.trace.Targets, t)
	}
	usable := func(t Target) bool { return t.Weight > 0 && len(t.Endpoints) > 0 }
	if !slices.ContainsFunc(w.trace.Targets, usable) {
		flag := "UH"
		if !slices.ContainsFunc(w.trace.Targets, func(t Target) bool { return t.Place != nil }) {
			flag = "NC"
		}
		if w.trace.Route != nil {
			w.trace.Status = 503
		}
		return w.end(NoCluster, LevelCluster, flag, "%s", reason)
	}
	if len(clusters) == 1 {
		return w.end(Forwarded, LevelCluster, "", "forwarded to cluster %s", clip.Value(clusters[0].Name))
	}
	return w.end(Forwarded, LevelCluster, "", "forwarded to one of %d clusters, by weight", len(clusters))
}

// fill adds the cluster and its endpoints. It returns why the cluster cannot receive anything, or
// "".
func (w *walk) fill(t *Target) string {
	m := w.config.cluster(t.Cluster)
	if m == nil {
		if slices.Contains(w.config.facts.StaticClusters, t.Cluster) {
			t.Place, t.Endpoints = &finding.Position{Type: envoy.KindCluster.URL(), Resource: t.Cluster},
				[]string{"of the bootstrap"}
			return ""
		}
		return fmt.Sprintf("cluster %q does not exist", clip.Value(t.Cluster))
	}
	t.Place = &finding.Position{Type: envoy.KindCluster.URL(), Resource: t.Cluster}
	switch {
	case m.GetClusterType().GetName() == forwardProxy:
		t.Endpoints = w.namedDestination()
		return ""
	case m.GetClusterType() != nil:
		t.Endpoints = []string{"of the custom cluster type " + clip.Value(m.GetClusterType().GetName())}
		return ""
	case m.GetType() == clusterv3.Cluster_ORIGINAL_DST:
		t.Endpoints = w.originalDestination(m)
		return ""
	}
	for _, l := range w.config.assignment(m).GetEndpoints() {
		for _, e := range l.GetLbEndpoints() {
			if len(t.Endpoints) == maxEndpoints {
				t.More++
				continue
			}
			t.Endpoints = append(t.Endpoints, addressText(e.GetEndpoint().GetAddress()))
		}
	}
	if len(t.Endpoints) == 0 {
		return fmt.Sprintf("cluster %q has no endpoints", clip.Value(t.Cluster))
	}
	return ""
}

// forwardProxy is the type of clusters that resolve the name that a client sends.
const forwardProxy = "envoy.clusters.dynamic_forward_proxy"

// namedDestination returns the name that a forward proxy cluster resolves: the request's Host, or
// else the server name. If the config sets no port, it assumes the dialed port, as in the agent's
// configs.
func (w *walk) namedDestination() []string {
	host, port, _ := net.SplitHostPort(w.socket.seen.Dst.String())
	if name := w.socket.seen.ServerName; name != "" {
		host = name
	}
	if w.req != nil {
		if host = w.req.Host; strings.Contains(host, ":") {
			if h, p, err := net.SplitHostPort(host); err == nil {
				host, port = h, p
			}
		}
	}
	return []string{net.JoinHostPort(clip.Value(LowerASCII(host)), port)}
}

// originalDestination returns the address to which an original destination cluster connects.
func (w *walk) originalDestination(m *clusterv3.Cluster) []string {
	lb := m.GetOriginalDstLbConfig()
	host, port, _ := net.SplitHostPort(w.socket.seen.Dst.String())
	if lb.GetUseHttpHeader() && w.req != nil {
		name := lb.GetHttpHeaderName()
		if name == "" {
			name = "x-envoy-original-dst-host"
		}
		for _, h := range w.req.Headers {
			if LowerASCII(h.Name) == LowerASCII(name) {
				return []string{h.Value}
			}
		}
	}
	if p := lb.GetUpstreamPortOverride(); p != nil {
		port = strconv.FormatUint(uint64(p.GetValue()), 10)
	}
	return []string{net.JoinHostPort(host, port)}
}

// addressText formats an address.
func addressText(a *corev3.Address) string {
	switch {
	case a.GetPipe() != nil:
		return "unix:" + clip.Value(a.GetPipe().GetPath())
	case a.GetEnvoyInternalAddress() != nil:
		return "envoy:" + clip.Value(a.GetEnvoyInternalAddress().GetServerListenerName())
	}
	s := a.GetSocketAddress()
	port := s.GetNamedPort()
	if port == "" {
		port = strconv.FormatUint(uint64(s.GetPortValue()), 10)
	}
	return net.JoinHostPort(clip.Value(s.GetAddress()), port)
}

// Log is an access log that records the connection or request.
type Log struct {
	finding.Position
	Name string `json:"name"`           // of the logger
	Sink string `json:"sink,omitempty"` // the file, or the type of the logger
	// Conditional is true for a log with a filter, which decides at the end of the connection or
	// request.
	Conditional bool `json:"conditional,omitempty"`
}

// logs records access logs.
func (w *walk) logs(list []*accesslogv3.AccessLog, at finding.Position) {
	for i, l := range list {
		w.log(l, at.Below(strconv.Itoa(i)), l.GetFilter() != nil)
	}
}

func (w *walk) log(l *accesslogv3.AccessLog, at finding.Position, conditional bool) {
	sink := ShortURL(l.GetTypedConfig().GetTypeUrl())
	var file filelogv3.FileAccessLog
	if l.GetTypedConfig().UnmarshalTo(&file) == nil {
		sink = clip.Value(file.GetPath())
	}
	w.trace.Logs = append(w.trace.Logs, Log{Position: at, Name: l.GetName(), Sink: sink, Conditional: conditional})
}

// flagNoChain is Envoy's response flag for a connection without a matching filter chain.
const flagNoChain = "NR"

// logsOfListener records the listener's own access logs, for all connections or only for those
// without a filter chain.
func (w *walk) logsOfListener(noChain bool) {
	for i, l := range w.listener.Message.GetAccessLog() {
		conditional := l.GetFilter() != nil
		if only, more := onlyNoChain(l.GetFilter()); only {
			if !noChain {
				continue
			}
			conditional = more
		}
		w.log(l, w.at.Below("accessLog", strconv.Itoa(i)), conditional)
	}
}

// onlyNoChain reports whether a filter selects only connections without a filter chain, and whether
// it has further conditions.
func onlyNoChain(f *accesslogv3.AccessLogFilter) (only, more bool) {
	if flags := f.GetResponseFlagFilter().GetFlags(); len(flags) == 1 && flags[0] == flagNoChain {
		return true, false
	}
	return slices.ContainsFunc(f.GetAndFilter().GetFilters(), func(f *accesslogv3.AccessLogFilter) bool {
		only, _ := onlyNoChain(f)
		return only
	}), true
}
