package passthrough_test

import (
	"slices"
	"strings"
	"testing"
)

// labelled returns policies of matched with a value of the pinning label.
func labelled(value, docs string) string {
	return strings.Replace(docs, `"mesh":"default",`, `"mesh":"default","labels":{"nearside.io/dns-pinned":`+value+`},`, 1)
}

// TestPinnedClusters checks which matches the label pins, and the warnings.
func TestPinnedClusters(t *testing.T) {
	const through = "type: Mesh\nname: default\nmtls: {enabledBackend: ca, backends: [{name: ca, type: builtin}]}\n" +
		"routing: {zoneEgress: true}\nnetworking: {outbound: {passthrough: false}}\n"
	all := []string{"tls *.a.com:443", "tls *.b.com", "tls c.com", "tls c.com:443", "http *.a.com:80", "http d.com",
		"http *.g.com:90", "tls *:8443", "tls 10.0.0.1:443", "tls *.*.e.com:443"}
	wildcards := []string{"tls_*.a.com_443", "tls_*.b.com_*", "tls_c.com_*", "http_*.a.com_80", "http_*.g.com_90"}
	notPinned := "p: appendMatch[5] (http d.com, all ports): not pinned: "
	for _, c := range []struct {
		name, docs string
		pinned     []string
		warning    string // substring of a warning
	}{
		{"no label", base + matched("p", all...), nil, "p: appendMatch[0] (tls *.a.com, port 443), "},
		{"false", base + labelled(`"false"`, matched("p", all...)), nil,
			`set the label nearside.io/dns-pinned: "true" to make the proxy resolve the name`},
		{"another value", base + labelled(`"yes"`, matched("p", all...)), nil,
			`labels["nearside.io/dns-pinned"] must be true or false, not "yes", which is treated as false`},
		{"true", base + labelled(`"true"`, matched("p", all...)), wildcards, notPinned},
		{"the second of two policies", base + matched("o", "tls *.a.com:443", "tls *.z.com:443") +
			labelled(`"true"`, matched("p", "tls *.a.com:443")), []string{"tls_*.a.com_443"}, "o: appendMatch[0] (tls " +
			"*.a.com, port 443) is pinned although this policy does not request it, because another policy with the same " +
			"match does"},
		{"through the egress", through + strings.TrimPrefix(base, strings.SplitN(base, "---", 2)[0]) +
			labelled(`"true"`, matched("p", "tls *.a.com:443")), nil,
			`labels["nearside.io/dns-pinned"] has no effect, because the matched traffic leaves through the ZoneEgress`},
	} {
		t.Run(c.name, func(t *testing.T) {
			e, warnings := newEnvoy(t, c.docs)
			var got []string
			for name, m := range e.clusters {
				if m.GetClusterType().GetName() == "envoy.clusters.dynamic_forward_proxy" {
					got = append(got, strings.TrimPrefix(name, "meshpassthrough_"))
				}
			}
			slices.Sort(got)
			want := slices.Sorted(slices.Values(c.pinned))
			if !slices.Equal(got, want) {
				t.Errorf("pinned are %q, want %q", got, want)
			}
			if !slices.ContainsFunc(warnings, func(w string) bool { return strings.Contains(w, c.warning) }) {
				t.Errorf("no warning contains %q:\n%s", c.warning, strings.Join(warnings, "\n"))
			}
		})
	}
}
