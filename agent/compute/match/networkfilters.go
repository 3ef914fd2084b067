package match

import (
	"strconv"

	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	netrbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"

	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/compute/envoy"
	"github.com/nearside-mesh/nearside/agent/compute/syntax"
	"github.com/nearside-mesh/nearside/agent/model/finding"
)

const (
	NetworkFilters = envoy.TypePrefix + "envoy.extensions.filters.network."
	HcmURL         = NetworkFilters + "http_connection_manager.v3.HttpConnectionManager"
	tcpURL         = NetworkFilters + "tcp_proxy.v3.TcpProxy"
	networkRBACURL = NetworkFilters + "rbac.v3.RBAC"
	forwardURL     = NetworkFilters + "sni_dynamic_forward_proxy.v3.FilterConfig"
	stateURL       = NetworkFilters + "set_filter_state.v3.Config"
)

// networkFilters evaluates the network filters of the chain in order, up to the terminal one.
func (w *walk) networkFilters() *Trace {
	for i, f := range w.match.Chain.GetFilters() {
		config := f.GetTypedConfig()
		position := w.chain.Below("filters", strconv.Itoa(i))
		step := Step{Level: LevelNetworkFilter, Input: clip.Value(f.GetName()), Choice: ShortURL(config.GetTypeUrl()),
			Place: &position}
		inside := position.Below("typedConfig")
		switch config.GetTypeUrl() {
		case HcmURL:
			m := &hcmv3.HttpConnectionManager{}
			if config.UnmarshalTo(m) == nil {
				w.step(step)
				return w.http(m, inside)
			}
		case tcpURL:
			m := &tcpv3.TcpProxy{}
			if config.UnmarshalTo(m) == nil {
				w.step(step)
				return w.tcp(m, inside)
			}
		case networkRBACURL:
			m := &netrbacv3.RBAC{}
			if config.UnmarshalTo(m) == nil {
				s := newStream(&Request{}, &w.socket.seen, w.conn.Peer, w.tls)
				d := decideRBAC(m.GetRules(), m.GetMatcher(), s, false)
				if t := w.rbac(&step, d, evaluateShadow(m.GetShadowRules(), m.GetShadowMatcher(), s, false)); t != nil {
					return t
				}
				continue
			}
		}
		if config.GetTypeUrl() == netLimitURL {
			w.netLimit(&step, config)
			continue
		}
		switch config.GetTypeUrl() {
		case forwardURL:
			step.note("the server name %s is resolved by the proxy, and the address that the client dialled does not count",
				clip.Value(w.socket.seen.ServerName))
		case stateURL:
			keys, all := syntax.ServerNameKeys(config)
			w.socket.seen.nameKeys = append(w.socket.seen.nameKeys, keys...)
			if !all {
				step.note("its effect on later filters is not evaluated here")
			}
		default:
			step.note("not evaluated here")
		}
		w.step(step)
	}
	return w.end(Broken, LevelNetworkFilter, "",
		"the filter chain has no terminal filter that is known here: Envoy closes the connection")
}

// firstBytes returns the first bytes that filters see: those inside TLS if the chain has terminated
// it.
func (w *walk) firstBytes() FirstBytes {
	if w.tls && w.conn.First == TLSHello {
		return w.conn.Within
	}
	return w.conn.First
}

// rbac records the decision of an RBAC filter. It returns the end of the trace, or nil.
func (w *walk) rbac(step *Step, d Decision, shadow string) *Trace {
	step.Choice = d.text()
	if shadow != "" {
		step.note("shadow rules would %s", shadow)
	}
	w.step(*step)
	if d.Policy != "" {
		w.trace.Policy = d.Policy
	}
	if d.Allowed {
		return nil
	}
	w.trace.Policy = d.Policy
	if step.Level == LevelHTTPFilter {
		w.trace.Status = 403
	}
	if w.firstBytes() == ServerFirst && step.Level == LevelNetworkFilter {
		return w.end(Denied, step.Level,
			"UAEX", "RBAC denies it when the client's first byte comes, and what the server says before is heard: %s", d.text())
	}
	return w.end(Denied, step.Level, "UAEX", "RBAC denies it: %s", d.text())
}

// tcp evaluates the TCP proxy.
func (w *walk) tcp(m *tcpv3.TcpProxy, at finding.Position) *Trace {
	w.logs(m.GetAccessLog(), at.Below("accessLog"))
	var clusters []WeightedCluster
	var total uint64
	if weighted := m.GetWeightedClusters(); weighted != nil {
		for _, c := range weighted.GetClusters() {
			clusters = append(clusters, WeightedCluster{Name: c.GetName(), Weight: c.GetWeight()})
			total += uint64(c.GetWeight())
		}
	} else {
		clusters, total = []WeightedCluster{{Name: m.GetCluster(), Weight: 1}}, 1
	}
	if w.req != nil {
		w.trace.Steps[len(w.trace.Steps)-1].note("the TCP proxy forwards the bytes of the request without looking at it")
	}
	if idle := durationOr(m.GetIdleTimeout(), tcpIdle); idle > 0 {
		w.effect(EffectTimeout, 100, 0, "a connection on which nothing moves for %s is closed", timeText(idle))
		w.trace.Effects[len(w.trace.Effects)-1].Step--
	}
	return w.forward(clusters, total)
}
