package match

import (
	"slices"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/model/finding"
)

const methodConnect = "CONNECT"

// Statuses with which the connection manager rejects requests before any filter.
const (
	statusLowVersion    = 426
	statusUpgradeFailed = 403
	statusBadRequest    = 400
)

// version rejects HTTP/1.0 requests unless the connection manager accepts them. It returns the end
// of the trace, or nil.
func (w *walk) version(m *hcmv3.HttpConnectionManager) *Trace {
	options := m.GetHttpProtocolOptions()
	switch {
	case w.conn.First != HTTP10:
		return nil
	case !options.GetAcceptHttp_10():
		w.trace.Status = statusLowVersion
		return w.end(Answered, LevelNetworkFilter, "",
			"the HTTP connection manager takes no HTTP/1.0 (accept_http_10) and answers with %d", statusLowVersion)
	case w.req.Host == "" && options.GetDefaultHostForHttp_10() == "":
		w.trace.Status = statusBadRequest
		return w.end(Answered, LevelNetworkFilter, "", "the request of HTTP/1.0 has no Host, and Envoy answers with %d",
			statusBadRequest)
	}
	return nil
}

// upgradeOf returns the protocol of the request's Upgrade header, or CONNECT, or "". It removes
// upgrades that Envoy ignores: those to h2c, and those that the options list.
func (s *stream) upgradeOf(options *corev3.Http1ProtocolOptions, first FirstBytes) string {
	if s.method == methodConnect {
		return methodConnect
	}
	to, ok := s.headers["upgrade"]
	if !ok || !hasToken(s.headers["connection"], "upgrade") {
		return ""
	}
	ignored := strings.EqualFold(to, alpnH2C) ||
		slices.ContainsFunc(options.GetIgnoreHttp_11Upgrade(), func(m *matcherv3.StringMatcher) bool {
			c := compileString(m)
			return c.matches(to)
		})
	if first == H2C || !ignored {
		return to
	}
	delete(s.headers, "upgrade")
	delete(s.headers, "http2-settings")
	rest := slices.DeleteFunc(strings.Split(s.headers["connection"], ","), func(t string) bool {
		t = strings.TrimSpace(t)
		return strings.EqualFold(t, "upgrade") || strings.EqualFold(t, "http2-settings")
	})
	if s.headers["connection"] = strings.Join(rest, ","); len(rest) == 0 {
		delete(s.headers, "connection")
	}
	return ""
}

// hasToken reports whether a comma-separated list contains a word, ignoring case.
func hasToken(list, word string) bool {
	for token := range strings.SplitSeq(list, ",") {
		if strings.EqualFold(strings.TrimSpace(token), word) {
			return true
		}
	}
	return false
}

// upgrade rejects upgrades that neither the route nor the connection manager accepts. A request
// without a route continues to the filters. It returns the filters of the request and their
// location.
func (w *walk) upgrade(m *hcmv3.HttpConnectionManager, at finding.Position, o overrides,
	to string) ([]*hcmv3.HttpFilter, finding.Position, *Trace) {
	own, position := m.GetHttpFilters(), at.Below("httpFilters")
	if to == "" {
		return own, position, nil
	}
	if w.firstBytes() == H2C && !m.GetHttp2ProtocolOptions().GetAllowConnect() && to != methodConnect {
		w.trace.Status = 0
		return nil, position, w.end(Broken, LevelNetworkFilter, "",
			"the HTTP connection manager takes no upgrade to %s over HTTP/2 (allow_connect) and resets the request",
			clip.Value(to))
	}
	allowed := false
	for _, c := range o.route.GetRoute().GetUpgradeConfigs() {
		if strings.EqualFold(c.GetUpgradeType(), to) {
			if allowed = enabled(c); !allowed {
				return nil, position, w.refuseUpgrade(to)
			}
		}
	}
	for i, c := range m.GetUpgradeConfigs() {
		if !strings.EqualFold(c.GetUpgradeType(), to) {
			continue
		}
		if len(c.GetFilters()) > 0 {
			own, position = c.GetFilters(), at.Below("upgradeConfigs", strconv.Itoa(i), "filters")
		}
		if on := c.GetEnabled(); on == nil || on.GetValue() {
			allowed = true
		}
	}
	if !allowed && o.route == nil {
		return m.GetHttpFilters(), at.Below("httpFilters"), nil
	}
	if !allowed {
		return nil, position, w.refuseUpgrade(to)
	}
	return own, position, nil
}

func enabled(c *routev3.RouteAction_UpgradeConfig) bool {
	return c.GetEnabled() == nil || c.GetEnabled().GetValue()
}

func (w *walk) refuseUpgrade(to string) *Trace {
	w.trace.Status = statusUpgradeFailed
	what := "upgrade to " + clip.Value(to)
	if to == methodConnect {
		what = methodConnect
	}
	return w.end(Answered, LevelNetworkFilter, "", "neither the HTTP connection manager nor the route takes the %s "+
		"(upgrade_configs): Envoy answers with %d", what, statusUpgradeFailed)
}
