package envoy_test

import (
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	corsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/cors/v3"

	"github.com/nearside-mesh/nearside/agent/compute/check"
	"github.com/nearside-mesh/nearside/agent/model/finding"
)

// TestWhatABuildHasNot checks that the check names extensions and commands that an Envoy does not
// report, with one checker for several builds. If an Envoy does not report its build, the check
// assumes that it supports everything.
func TestWhatABuildHasNot(t *testing.T) {
	certificate, key := keyPair(t)
	only := func(types ...string) *finding.Build {
		b := &finding.Build{Version: finding.ParseVersion("1.36.2"), Extensions: map[string]map[string]bool{}}
		for _, x := range types {
			category, name, _ := strings.Cut(x, " ")
			if b.Extensions[category] == nil {
				b.Extensions[category] = map[string]bool{}
			}
			b.Extensions[category][name] = true
		}
		return b
	}
	const http, net = "envoy.extensions.filters.http.", "envoy.extensions.filters.network."
	slim := []string{
		"envoy.filters.http " + http + "router.v3.Router", "envoy.filters.network " + net + "tcp_proxy.v3.TcpProxy",
		"envoy.filters.network " + net + "http_connection_manager.v3.HttpConnectionManager",
		"envoy.access_loggers envoy.extensions.access_loggers.file.v3.FileAccessLog",
		"envoy.filters.listener envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector",
		"envoy.filters.listener envoy.extensions.filters.listener.http_inspector.v3.HttpInspector",
		"envoy.transport_sockets.downstream envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext",
		"envoy.transport_sockets.upstream envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
	}
	format := func(text string) func(*base) {
		return func(b *base) {
			b.file.GetLogFormat().Format = &corev3.SubstitutionFormatString_TextFormatSource{TextFormatSource: inlineText(text)}
		}
	}
	cors := func(b *base) { b.prepend(httpFilter("cors", &corsv3.Cors{})) }
	pattern := func(b *base) { b.route().Match = safeRegex(`/\x{100}`) }
	var c check.Checker
	for _, x := range []struct {
		name   string
		breaks func(*base)
		build  *finding.Build
		want   string // "" for no finding
	}{
		{"all that the base needs", func(*base) {}, only(slim...), ""},
		{"a filter", cors, only(slim...),
			"Envoy 1.36.2 has no envoy.extensions.filters.http.cors.v3.Cors (envoy.filters.http)"},
		{"a filter that it has", cors, only(append(slim, "envoy.filters.http "+http+"cors.v3.Cors")...), ""},
		{"a filter, and nothing is listed", cors, &finding.Build{Version: finding.ParseVersion("1.36.2")}, ""},
		{"a command", format("%SPAN_ID%"), &finding.Build{Version: finding.ParseVersion("1.36.2")}, "has no SPAN_ID"},
		{"a command of a newer one", format("%SPAN_ID%"), &finding.Build{Version: finding.ParseVersion("1.40.0-dev")}, ""},
		{"a command, and the version is not known", format("%SPAN_ID%"), nil, ""},
		{"a character", pattern, &finding.Build{Version: finding.ParseVersion("1.39.0")}, `has no \x{100} and above`},
		{"a character in an older one", pattern, &finding.Build{Version: finding.ParseVersion("1.38.1")}, ""},
	} {
		b := newBase(certificate, key)
		x.breaks(b)
		b.facts.Build = x.build
		_, next := sealBase(t, b, certificate, key)
		got := c.Check(nil, next, b.facts)
		switch {
		case x.want == "" && len(got) > 0:
			t.Errorf("%s: %+v", x.name, got)
		case x.want != "" &&
			(len(got) != 1 || got[0].Rule != 23 || got[0].Resource != "in" || !strings.Contains(got[0].Message, x.want)):
			t.Errorf("%s: %+v, want %q", x.name, got, x.want)
		}
	}
}
