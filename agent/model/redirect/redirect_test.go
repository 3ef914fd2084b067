package redirect_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/redirect"
)

// TestAnnotate checks what annotations set, and what is said about those without effect.
func TestAnnotate(t *testing.T) {
	const traffic = "traffic.kuma.io/"
	for _, c := range []struct {
		name        string
		have        *redirect.Options
		annotations map[string]string
		want        string // the options, notes, and faults
	}{
		{name: "none", want: "null"},
		{name: "others", annotations: map[string]string{"kuma.io/mesh": "default", "kuma.io/builtindns": "enabled",
			"kuma.io/builtindnsport": "15053", "kuma.io/transparent-proxying": "enabled",
			"kuma.io/transparent-proxying-inbound-port": "15006"}, want: "null"},
		{name: "all", annotations: map[string]string{traffic + "exclude-inbound-ports": "8080, 9090",
			traffic + "exclude-outbound-ports": "22", traffic + "exclude-outbound-ips": "10.0.0.0/8,fd00::1",
			traffic + "exclude-inbound-ips": "192.168.1.1", redirect.AnnotationProbePorts: "8081",
			"kuma.io/builtindnsport": "15054"},
			want: `{"excludeInboundPorts":[8080,9090],"excludeOutboundPorts":[22],"excludeInboundIPs":["192.168.1.1"],` +
				`"excludeOutboundIPs":["10.0.0.0/8","fd00::1"],"probePorts":[8081],"dnsPort":15054}`},
		{name: "without DNS", annotations: map[string]string{"kuma.io/builtindns": "disabled",
			"kuma.io/builtindnsport": "x"}, want: `{"withoutDNS":true}`},
		{name: "without effect", annotations: map[string]string{traffic + "drop-invalid-packets": "true"},
			want: `null; a["traffic.kuma.io/drop-invalid-packets"]: without effect: packets are not dropped`},
		{name: "one family", annotations: map[string]string{"kuma.io/transparent-proxying-ip-family-mode": "ipv6"},
			want: `null; a["kuma.io/transparent-proxying-ip-family-mode"]: the proxy listens only for IPv6. Connections of`},
		{name: "both families", annotations: map[string]string{"kuma.io/transparent-proxying-ip-family-mode": "DualStack"},
			want: "null"},
		{name: "unknown family", annotations: map[string]string{"kuma.io/transparent-proxying-ip-family-mode": "4"},
			want: `null; a["kuma.io/transparent-proxying-ip-family-mode"]: without effect: "4" is none of dualstack, ipv4, ipv6`},
		{name: "invalid", annotations: map[string]string{traffic + "exclude-inbound-ports": "http",
			traffic + "exclude-outbound-ports": "65536", traffic + "exclude-outbound-ips": "0.0.0.0/0",
			"kuma.io/builtindns": "perhaps", redirect.AnnotationProbePorts: "0"},
			want: `null; a["traffic.kuma.io/exclude-inbound-ports"]: "http" is not a port; ` +
				`a["traffic.kuma.io/exclude-outbound-ports"]: "65536" is not a port; ` +
				`a["nearside.io/probe-ports"]: "0" is not a port; ` +
				`a["traffic.kuma.io/exclude-outbound-ips"]: "0.0.0.0/0" is not an address or a network; ` +
				`a["kuma.io/builtindns"]: "perhaps" is neither enabled nor disabled`},
		{name: "many", annotations: map[string]string{
			redirect.AnnotationProbePorts: strings.Repeat("1,", redirect.MaxItems+1)},
			want: `a["nearside.io/probe-ports"]: 129 values, at most 128 are allowed`},
		{name: "the field", have: &redirect.Options{ProbePorts: []uint32{7}},
			annotations: map[string]string{redirect.AnnotationProbePorts: "8"},
			want:        `{"probePorts":[7]}; a: networking.transparentProxying.redirect takes precedence`},
	} {
		t.Run(c.name, func(t *testing.T) {
			o, notes, faults := redirect.Annotate("a", c.have, c.annotations)
			b, err := json.Marshal(o)
			if err != nil {
				t.Fatal(err)
			}
			got := append([]string{string(b)}, notes...)
			for _, f := range faults {
				got = append(got, f.Name+": "+f.Reason)
			}
			text := strings.Join(got, "; ")
			for _, want := range strings.Split(c.want, "; ") {
				if !strings.Contains(text, want) {
					t.Errorf("%s\nlacks %s", text, want)
				}
			}
			if n := len(strings.Split(c.want, "; a")); len(got) != n && c.name != "many" {
				t.Errorf("%d parts, want %d:\n%s", len(got), n, text)
			}
		})
	}
}

// TestFaults checks the bounds of the fields.
func TestFaults(t *testing.T) {
	o := redirect.Options{ExcludeInboundPorts: []uint32{1, 0}, ProbePorts: []uint32{65536},
		ExcludeOutboundIPs: []string{"10.0.0.0/8", "10.0.0.0/33"}, ExcludeInboundIPs: []string{"::ffff:1.2.3.4/120"},
		DNSPort: 53, WithoutDNS: true}
	got := fmt.Sprint(o.Faults())
	for _, want := range []string{`excludeInboundPorts[1] "0" is not a port`, `probePorts[0] "65536"`,
		`excludeOutboundIPs[1] "10.0.0.0/33"`, `excludeInboundIPs[0]`, "dnsPort 53 is not", "no effect with withoutDNS"} {
		if !strings.Contains(got, want) {
			t.Errorf("%s\nlacks %s", got, want)
		}
	}
	o = redirect.Options{ExcludeOutboundPorts: make([]uint32, redirect.MaxItems+1)}
	if got := fmt.Sprint(o.Faults()); !strings.Contains(got, "129 values, at most 128") {
		t.Error(got)
	}
}

// FuzzParse checks that options without faults have valid fields.
func FuzzParse(f *testing.F) {
	f.Add("8080,9090", "10.0.0.0/8,fd00::/8", "enabled", "15053")
	f.Add("1,,2", "::1%eth0", "disabled", "53")
	f.Fuzz(func(t *testing.T, ports, ips, dns, port string) {
		o, _, faults := redirect.Parse(map[string]string{"traffic.kuma.io/exclude-inbound-ports": ports,
			"nearside.io/probe-ports": ports, "traffic.kuma.io/exclude-outbound-ips": ips, "kuma.io/builtindns": dns,
			"kuma.io/builtindnsport": port})
		if o == nil || len(faults) > 0 {
			return
		}
		if invalid := o.Faults(); len(invalid) > 0 {
			t.Errorf("%+v: %v", o, invalid)
		}
	})
}
