package referencetest

import (
	"crypto/tls"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/test/envoytest"
)

// pair has the reference's form of a config and that of nearside, and reports what each one does.
type pair struct {
	name            string
	reference, ours form
	outcome         func(*testing.T, *envoytest.Process, *form) string
	wantReference   string // the outcome of the reference's form
	wantOurs        string
}

const anyRoute = `{match: {prefix: /}, route: {cluster: NAME%s}}`

// retries reports how many requests reach the server.
func retries(t *testing.T, status int, header ...string) (string, func(*testing.T, *envoytest.Process, *form) string) {
	server, address := serveHTTP(t, status, header...)
	return address, func(t *testing.T, _ *envoytest.Process, f *form) string {
		before := len(server.seen())
		f.get(t, "/")
		return fmt.Sprintf("%d requests", len(server.seen())-before)
	}
}

// retryPair compares two retry policies for responses of a server.
func retryPair(t *testing.T, name, reference, ours, wantReference, wantOurs string, status int, header ...string) pair {
	t.Helper()
	address, outcome := retries(t, status, header...)
	f := func(policy string) form {
		return form{upstream: address, filters: httpFilters(fmt.Sprintf(anyRoute, ", retry_policy: "+policy), "")}
	}
	return pair{name: name, outcome: outcome, reference: f(reference), ours: f(ours),
		wantReference: wantReference, wantOurs: wantOurs}
}

// TestClassifiedDifferences: where .ci/fidelity-known says that nearside is right, that both are
// equal, or that the reference is wrong, Envoy says so too.
func TestClassifiedDifferences(t *testing.T) {
	pairs := []pair{
		retryPair(t, "headers of a retry policy count only with retriable-headers",
			`{retry_on: "5xx", num_retries: 1, retriable_headers: [{name: x-again, present_match: true}]}`,
			`{retry_on: "5xx,retriable-headers", num_retries: 1, retriable_headers: [{name: x-again, present_match: true}]}`,
			"1 requests", "2 requests", 404, "x-again", "1"),
		retryPair(t, "the word for a canceled call is cancelled",
			`{retry_on: "canceled", num_retries: 1}`, `{retry_on: "cancelled", num_retries: 1}`,
			"1 requests", "2 requests", 200, "content-type", "application/grpc", "grpc-status", "1"),
		prefixPair(t), virtualHostPair(t), payloadPair(t), bannerPair(t), noChainPair(t), attemptsPair(t), versionPair(t),
		remainingPair(t), unlimitedPair(t),
	}
	var forms []*form
	for i := range pairs {
		p := &pairs[i]
		p.reference.name, p.ours.name = fmt.Sprintf("reference-%d", i), fmt.Sprintf("ours-%d", i)
		forms = append(forms, &p.reference, &p.ours)
	}
	e := start(t, forms)
	for i := range pairs {
		p := &pairs[i]
		t.Run(p.name, func(t *testing.T) {
			if got := p.outcome(t, e, &p.reference); got != p.wantReference {
				t.Errorf("the reference's form: %q, want %q", got, p.wantReference)
			}
			if got := p.outcome(t, e, &p.ours); got != p.wantOurs {
				t.Errorf("the form of nearside: %q, want %q", got, p.wantOurs)
			}
		})
	}
}

// prefixPair: /pre in place of / makes /prea of /a.
func prefixPair(t *testing.T) pair {
	server, address := serveHTTP(t, 200)
	f := func(by string) form {
		return form{upstream: address, filters: httpFilters(fmt.Sprintf(anyRoute, ", prefix_rewrite: "+by), "")}
	}
	return pair{name: "a replaced prefix is whole elements of the path", reference: f("/pre"), ours: f("/pre/"),
		wantReference: "/prea", wantOurs: "/pre/a",
		outcome: func(t *testing.T, _ *envoytest.Process, f *form) string {
			f.get(t, "/a")
			seen := server.seen()
			return seen[len(seen)-1]
		}}
}

// virtualHostPair: a retry policy of a virtual host is that of its routes.
func virtualHostPair(t *testing.T) pair {
	address, outcome := retries(t, 503)
	const policy = `retry_policy: {retry_on: "5xx", num_retries: 2}`
	return pair{name: "a retry policy of a virtual host is that of its routes", outcome: outcome,
		reference:     form{upstream: address, filters: httpFilters(fmt.Sprintf(anyRoute, ""), ", "+policy)},
		ours:          form{upstream: address, filters: httpFilters(fmt.Sprintf(anyRoute, ", "+policy), "")},
		wantReference: "3 requests", wantOurs: "3 requests"}
}

// payloadPair: the payload of a probe is hexadecimal text of the bytes.
func payloadPair(t *testing.T) pair {
	f := func(text string) (form, <-chan string) {
		probes := make(chan string, 16)
		address := serve(t, func(c net.Conn) {
			select {
			case probes <- first(c):
			default: // a later probe
			}
		})
		return form{upstream: address, filters: tcpProxy, cluster: `
health_checks: [{timeout: 5s, interval: 60s, unhealthy_threshold: 1, healthy_threshold: 1,
  tcp_health_check: {send: {text: "` + text + `"}, receive: [{text: "00"}]}}]`}, probes
	}
	encoded := base64.StdEncoding.EncodeToString([]byte("ping"))
	reference, atReference := f(hex.EncodeToString([]byte(encoded)))
	ours, atOurs := f(hex.EncodeToString([]byte("ping")))
	return pair{name: "the payload of a TCP probe", reference: reference, ours: ours,
		wantReference: encoded, wantOurs: "ping",
		outcome: func(_ *testing.T, _ *envoytest.Process, f *form) string {
			if strings.HasPrefix(f.name, "reference") {
				return <-atReference
			}
			return <-atOurs
		}}
}

const denyAll = `
- name: rbac
  typed_config:
    "@type": type.googleapis.com/envoy.extensions.filters.network.rbac.v3.RBAC
    stat_prefix: NAME
    rules: {}`

// bannerPair: behind a permission that admits nobody, a server that speaks first is heard all the
// same.
func bannerPair(t *testing.T) pair {
	address := serve(t, func(c net.Conn) { _, _ = c.Write([]byte("220 secret\n")); first(c) })
	return pair{name: "who is denied does not hear a server that speaks first",
		reference:     form{upstream: address, filters: denyAll + tcpProxy},
		ours:          form{filters: denyAll + tcpProxy}, // the cluster nearside:nobody has no endpoint
		wantReference: "220 secret\n", wantOurs: "",
		outcome: func(t *testing.T, _ *envoytest.Process, f *form) string { return f.hear(t) }}
}

// noChainPair: a chain without filters and a cluster without endpoints both close the connection.
func noChainPair(t *testing.T) pair {
	address := serve(t, func(c net.Conn) { _, _ = c.Write([]byte("220\n")); first(c) })
	return pair{name: "a destination that no TrafficRoute is about is closed",
		reference: form{upstream: address, filters: " []"}, ours: form{filters: tcpProxy},
		outcome: func(t *testing.T, _ *envoytest.Process, f *form) string { return f.hear(t) }}
}

// attemptsPair: a TCP proxy tries once by default.
func attemptsPair(t *testing.T) pair {
	closed := listen(t)
	_ = closed.Close()
	address := closed.Addr().String()
	once := strings.Replace(tcpProxy, "cluster: NAME", "cluster: NAME\n    max_connect_attempts: 1", 1)
	return pair{name: "max_connect_attempts is 1 by default",
		reference: form{upstream: address, filters: tcpProxy}, ours: form{upstream: address, filters: once},
		wantReference: "1", wantOurs: "1",
		outcome: func(t *testing.T, e *envoytest.Process, f *form) string {
			f.hear(t)
			return stat(e, "cluster."+f.name+".upstream_cx_connect_fail")
		}}
}

// versionPair: towards a server that offers TLS 1.3, Envoy's own maximum is 1.2.
func versionPair(t *testing.T) pair {
	versions := make(chan string, 1)
	certificate := httptest.NewUnstartedServer(nil)
	certificate.StartTLS()
	t.Cleanup(certificate.Close)
	config := &tls.Config{Certificates: certificate.TLS.Certificates}
	address := serve(t, func(c net.Conn) {
		s := tls.Server(c, config)
		if err := s.Handshake(); err != nil {
			versions <- err.Error()
			return
		}
		versions <- tls.VersionName(s.ConnectionState().Version)
	})
	f := func(params string) form {
		return form{upstream: address, filters: tcpProxy, cluster: `
transport_socket:
  name: tls
  typed_config:
    "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext` + params}
	}
	return pair{name: "TLS 1.3 towards other proxies", reference: f(""),
		ours:          f("\n    common_tls_context: {tls_params: {tls_maximum_protocol_version: TLSv1_3}}"),
		wantReference: "TLS 1.2", wantOurs: "TLS 1.3",
		outcome: func(t *testing.T, _ *envoytest.Process, f *form) string {
			f.hear(t)
			return <-versions
		}}
}

// remainingPair: trackRemaining adds figures to the statistics, and changes no limit.
func remainingPair(t *testing.T) pair {
	_, address := serveHTTP(t, 200)
	f := func(more string) form {
		return form{upstream: address, filters: httpFilters(fmt.Sprintf(anyRoute, ""), ""),
			cluster: "\ncircuit_breakers: {thresholds: [{max_requests: 1" + more + "}]}"}
	}
	return pair{name: "trackRemaining counts only", reference: f(", track_remaining: true"), ours: f(""),
		wantReference: "200, remaining 1", wantOurs: "200, remaining ",
		outcome: func(t *testing.T, e *envoytest.Process, f *form) string {
			return fmt.Sprintf("%d, remaining %s", f.get(t, "/"),
				stat(e, "cluster."+f.name+".circuit_breakers.default.remaining_rq"))
		}}
}

// unlimitedPair: a local rate limit without a bucket limits nothing.
func unlimitedPair(t *testing.T) pair {
	_, address := serveHTTP(t, 200)
	filters := httpFilters(fmt.Sprintf(anyRoute, ""), "")
	const limit = `http_filters: [{name: limit, typed_config: {"@type": type.googleapis.com/` +
		`envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit, stat_prefix: NAME}}, `
	return pair{name: "a rate limit without a bucket limits nothing",
		reference: form{upstream: address, filters: strings.Replace(filters, "http_filters: [", limit, 1)},
		ours:      form{upstream: address, filters: filters}, wantReference: "[200 200 200]", wantOurs: "[200 200 200]",
		outcome: func(t *testing.T, _ *envoytest.Process, f *form) string {
			return fmt.Sprint([]int{f.get(t, "/"), f.get(t, "/"), f.get(t, "/")})
		}}
}

// stat returns the value of a counter or gauge.
func stat(e *envoytest.Process, name string) string {
	_, text := e.Admin("/stats?filter=^" + name + "$")
	_, value, _ := strings.Cut(strings.TrimSpace(text), ": ")
	return value
}

// TestPlaceholders: Envoy refuses a placeholder that only a control plane knows, so the reference's
// OpenTelemetry attribute would cost the whole listener.
func TestPlaceholders(t *testing.T) {
	path := envoytest.Find(t)
	const log = `cluster: NAME
    access_log: [{name: otel, typed_config: {"@type": type.googleapis.com/` +
		`envoy.extensions.access_loggers.open_telemetry.v3.OpenTelemetryAccessLogConfig, ` +
		`common_config: {log_name: x, transport_api_version: V3, grpc_service: {envoy_grpc: {cluster_name: NAME}}}, ` +
		`attributes: {values: [{key: mesh, value: {string_value: "%s"}}]}}}]`
	for _, c := range []struct {
		value string
		valid bool
	}{{"%KUMA_MESH%", false}, {"default", true}} {
		f := &form{name: "log", filters: strings.Replace(tcpProxy, "cluster: NAME", fmt.Sprintf(log, c.value), 1)}
		file := filepath.Join(t.TempDir(), "envoy.yaml")
		text := bootstrap(filepath.Join(t.TempDir(), "admin"), []*form{f})
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.CommandContext(t.Context(), path, "--mode", "validate", "-c", file).CombinedOutput()
		if (err == nil) != c.valid || !c.valid && !strings.Contains(string(out), "KUMA_MESH") {
			t.Errorf("%s: %v\n%s", c.value, err, out)
		}
	}
}
