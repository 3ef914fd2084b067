package reconcile_test

import (
	"strings"
	"testing"
	"time"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/deliver/reconcile"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// inboundTLS returns the versions and ciphers of the first inbound of a config.
func inboundTLS(t *testing.T, s *draft.Sealed) string {
	t.Helper()
	for _, r := range s.Resources[draft.RankListener] {
		l := &listenerv3.Listener{}
		agenttest.Do(t, proto.Unmarshal(r.Body(), l))
		if !strings.HasPrefix(l.Name, "inbound:") || l.FilterChains[0].TransportSocket == nil {
			continue
		}
		var c tlsv3.DownstreamTlsContext
		agenttest.Do(t, l.FilterChains[0].TransportSocket.GetTypedConfig().UnmarshalTo(&c))
		p := c.CommonTlsContext.TlsParams
		if p == nil {
			return "default"
		}
		return mesh.TLSRange{Min: int(p.TlsMinimumProtocolVersion), Max: int(p.TlsMaximumProtocolVersion),
			Ciphers: p.CipherSuites}.String()
	}
	t.Fatal("no inbound has TLS")
	return ""
}

// TestTLSVersionsChangeInSteps checks that the TLS versions and ciphers of proxies overlap at any
// time, and that a change is pending until its last step.
func TestTLSVersionsChangeInSteps(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s, p := agenttest.TwoProxies(t), agenttest.NewPublisher("default.web", "default.other")
	r := reconcile.New(reconcile.Options{Store: s, Publisher: p, Now: func() time.Time { return now }})
	agenttest.ByAPI(t, s, "{type: Mesh, name: default, mtls: {enabledBackend: ca, backends: [{name: ca, type: builtin}]}}")
	set := func(conf string) {
		agenttest.ByAPI(t, s, "{type: MeshTLS, mesh: default, name: t, spec: {targetRef: {kind: Mesh}, "+
			"from: [{targetRef: {kind: Mesh}, default: {"+conf+"}}]}}")
	}
	step := func(after time.Duration, want string, pending bool) {
		t.Helper()
		now = now.Add(after)
		problems := strings.Join(agenttest.Pass(r), "\n")
		if got := inboundTLS(t, p.Of("default.web")); got != want {
			t.Fatalf("it is %q, want %q", got, want)
		}
		why := r.Last().Switching[resource.Key{Kind: "MeshTLS", Mesh: "default"}]
		if (why != "") != pending || !strings.Contains(problems, why) {
			t.Errorf("%q: waits for %q, reported: %s", want, why, problems)
		}
	}
	const old, next, both = "TLS 1.2", "TLS 1.3", "TLS 1.2 to 1.3"
	step(0, "default", false)
	set("tlsVersion: {min: TLS12, max: TLS12}") // narrower than the default, with which all proxies agree
	step(time.Minute, old, false)
	set("tlsVersion: {min: TLS13, max: TLS13}")
	step(time.Minute, both, true)
	step(4*time.Second, both, true)
	step(time.Second, next, false)
	set("tlsVersion: {min: TLS12, max: TLS12}")
	step(time.Second, both, true)
	set("tlsVersion: {min: TLS13, max: TLS13}") // reverted before the end
	step(time.Second, both, true)
	step(5*time.Second, next, false)
	set("tlsVersion: {min: TLS12, max: TLS13}") // wider
	step(time.Second, both, false)
	set("tlsVersion: {min: TLS12, max: TLS12}") // not every proxy may have the wider range yet
	step(time.Second, both, true)
	step(5*time.Second, old, false)

	const aes, rsa = "ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-RSA-AES256-GCM-SHA384"
	set("tlsVersion: {min: TLS12, max: TLS12}, tlsCiphers: [" + rsa + "]")
	step(time.Minute, old+" with "+rsa, false)
	set("tlsVersion: {min: TLS12, max: TLS12}, tlsCiphers: [" + aes + "]")
	step(time.Minute, old+" with "+aes+", "+rsa, true)
	step(5*time.Second, old+" with "+aes, false)
	set("tlsVersion: {min: TLS13, max: TLS13}")
	step(time.Minute, both, true)
	_, err := s.Apply(store.Batch{Source: store.Source{Kind: store.SourceAPI}, Durable: true,
		Ops: []store.Op{{Delete: resource.Key{Kind: "MeshTLS", Mesh: "default", Name: "t"}}}})
	agenttest.Do(t, err)
	step(time.Second, "default", false) // it includes all earlier ranges
	step(time.Minute, "default", false)

	// After a restart, an agent continues with the current state. Without connected proxies, it need
	// not wait.
	set("tlsVersion: {min: TLS12, max: TLS12}")
	r = reconcile.New(reconcile.Options{Store: s, Publisher: p, Now: func() time.Time { return now }})
	step(0, old, false)
	set("tlsVersion: {min: TLS13, max: TLS13}")
	step(0, both, true)
	p.Connect()
	agenttest.Pass(r)
	p.Connect("default.web")
	step(0, next, false)
}
