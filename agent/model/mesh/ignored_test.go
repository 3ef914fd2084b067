package mesh_test

import (
	"strings"
	"testing"
)

// TestIgnoredFields checks that fields of Mesh and Dataplane without effect cause one warning each.
func TestIgnoredFields(t *testing.T) {
	const ca = "mtls: {enabledBackend: ca, backends: [{name: ca, type: builtin%s}]%s}\n"
	field := func(backend, mtls string) string {
		return strings.Replace(strings.Replace(ca, "%s", backend, 1), "%s", mtls, 1)
	}
	for _, c := range []struct{ fields, want string }{
		{"", ""},
		{field("", ""), ""},
		{"constraints: {dataplaneProxy: {requirements: [{tags: {team: a}}]}}\n", "constraints have no effect"},
		{"metrics: {enabledBackend: p, backends: [{name: p, type: prometheus}]}\n", "metrics has no effect"},
		{field("", ", skipValidation: true"), "mtls.skipValidation has no effect"},
		{field(", rootChain: {requestTimeout: 7s}", ""), "mtls.backends[0].rootChain.requestTimeout has no effect"},
		{field(", dpCert: {requestTimeout: 7s}", ""), "mtls.backends[0].dpCert.requestTimeout has no effect"},
		{field(", dpCert: {rotation: {expiration: 1d}}", ""), ""},
	} {
		v := build(t, meshDoc+c.fields+dataplane("a", "10.0.0.1", "a", ""))
		got := warningsOf(v, "Mesh")
		if c.want == "" && len(got) > 0 || c.want != "" && (len(got) != 1 || !strings.Contains(got[0], c.want)) {
			t.Errorf("%s: got %q, want %q", c.fields, got, c.want)
		}
	}
	for variant, want := range map[string]bool{"DEFAULT": false, "GRPC": true, "DELTA_GRPC": true} {
		v := build(t, meshDoc+dataplane("a", "10.0.0.1", "a", "")+"---\n{type: Dataplane, mesh: default, name: web, "+
			"networking: {address: 10.0.0.2, inbound: [{port: 80, servicePort: 81, tags: {kuma.io/service: web}}]}, "+
			"envoy: {xdsTransportProtocolVariant: "+variant+"}}\n")
		_, warnings := v.Outbounds(v.Dataplane("web"))
		if got := len(warnings) == 1 && strings.Contains(warnings[0].Reason, "xdsTransportProtocolVariant"); got != want ||
			len(warnings) > 1 {
			t.Errorf("%s: %v", variant, warnings)
		}
	}
}
