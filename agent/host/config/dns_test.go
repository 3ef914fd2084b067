package config_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// TestForwardConfig reads upstreams of domains, with the default port of the protocol.
func TestForwardConfig(t *testing.T) {
	cfg, _, faults := agenttest.LoadConfig(t, `dns:
  trustAD: true
  forward:
  - domains: [corp.example, 10.in-addr.arpa, _msdcs.ad.example]
    upstreams: [10.0.0.53, "[fd00::53]:5353"]
  - {domains: ["."], upstreams: [192.0.2.53, "192.0.2.54:8853"], protocol: tls, serverName: dns.example.net}
`, nil, nil)
	if faults != nil {
		t.Fatal(faults)
	}
	d := cfg.DNS
	got := fmt.Sprintln(d.TrustAD, d.NegativeTTL, d.Forward[0].Protocol, d.Forward[0].Servers(), d.Forward[1].Servers())
	if want := "true 5 udp [10.0.0.53:53 [fd00::53]:5353] [192.0.2.53:853 192.0.2.54:8853]\n"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestForwardConfigFaults names the invalid key of an item.
func TestForwardConfigFaults(t *testing.T) {
	for item, want := range map[string]string{
		`{upstreams: [10.0.0.1]}`:                                "[0].domains: is required",
		`{domains: [a.example]}`:                                 "[0].upstreams: is required",
		`{domains: [], upstreams: [10.0.0.1]}`:                   "[0].domains: is empty",
		`{domains: [A.example], upstreams: [10.0.0.1]}`:          `[0].domains[0]: "A.example" is not a domain`,
		`{domains: [a.example], upstreams: [dns.example]}`:       `[0].upstreams[0]: "dns.example" is not an IP`,
		`{domains: [a.example], upstreams: ["127.0.0.1:15053"]}`: `[0].upstreams[0]: "127.0.0.1:15053" is the resolver`,
		`{domains: [a.example], upstreams: ["::1", "[::1]:53"]}`: `[0].upstreams[1]: "[::1]:53" is also item [0]`,
		`{domains: [a.example], upstreams: [0.0.0.0]}`:           `[0].upstreams[0]: "0.0.0.0" is not the address`,
		`{domains: [a.localhost], upstreams: [10.0.0.1]}`:        `[0].domains[0]: "a.localhost" never leaves the host`,
		`{domains: [a.mesh], upstreams: [10.0.0.1]}`:             `[0].domains[0]: "a.mesh" belongs to the meshes`,
		`{domains: [a.b, a.b], upstreams: [10.0.0.1]}`:           `[0].domains[1]: "a.b" is also dns.forward[0].`,
		`{domains: [a.b], upstreams: [10.0.0.1], protocol: doh}`: `[0].protocol: "doh" is not known; one of udp, tcp, tls`,
		`{domains: [a.b], upstreams: [10.0.0.1], serverName: x}`: `[0].serverName: "x" has no effect without TLS`,
	} {
		_, _, faults := agenttest.LoadConfig(t, "dns:\n  forward:\n  - "+item+"\n", nil, nil)
		if !slices.ContainsFunc(faults, func(s string) bool { return strings.Contains(s, "dns.forward"+want) }) {
			t.Errorf("%s: %q, want a fault with %q", item, faults, want)
		}
	}
	for _, key := range []string{"dns.ttl", "dns.negativeTTL"} {
		_, _, faults := agenttest.LoadConfig(t, "", nil, []string{key + "=0"})
		if len(faults) != 1 || !strings.Contains(faults[0], key+": 0 is not allowed") {
			t.Errorf("%s: %q", key, faults)
		}
	}
}
