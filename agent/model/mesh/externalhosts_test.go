package mesh_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/mesh"
)

// TestExternalHosts checks which hosts of ExternalServices get virtual addresses, with which ports,
// and which dataplane has outbounds there.
func TestExternalHosts(t *testing.T) {
	es := func(name, service, address, more string) string {
		return fmt.Sprintf("---\ntype: ExternalService\nmesh: default\nname: %s\ntags: {kuma.io/service: %s}\n"+
			"networking: {address: %q%s}\n", name, service, address, more)
	}
	const redirected = "  transparentProxying: {redirectPortInbound: 15006, redirectPortOutbound: 15001%s}\n"
	dps := dataplane("web", "10.0.0.1", "web", fmt.Sprintf(redirected, "")) + dataplane("plain", "10.0.0.2", "plain", "") +
		dataplane("few", "10.0.0.3", "few", fmt.Sprintf(redirected, ", reachableServices: [pay]"))
	for _, tc := range []struct{ what, docs, want string }{
		{"one service", es("a", "pay", "Pay.example.com:443", ""),
			"pay.example.com [80 443]: 80=pay 443=pay; few: pay.example.com"},
		{"two services", es("a", "pay", "pay.example.com:443", "") + es("b", "admin", "pay.example.com:8443", ""),
			"pay.example.com [443 8443]: 443=pay 8443=admin; few: pay.example.com"},
		{"a service that not all reach", es("a", "admin", "pay.example.com:443", ""),
			"pay.example.com [80 443]: 80=admin 443=admin; few: "},
		{"two services on one port", es("a", "pay", "pay.example.com:80", "") + es("b", "admin", "pay.example.com:80", ""),
			"pay.example.com [80]: 80=pay; few: pay.example.com; ! networking.address: pay.example.com:80 leads workloads to " +
				"the service pay of a, and not to admin; give both the same service, or set " +
				"networking.disableHostDNSEntry: true on one of them"},
		{"disabled", es("a", "pay", "pay.example.com:443", ", disableHostDNSEntry: true"), "; few: "},
		{"no names", es("a", "pay", "192.0.2.1:443", "") + es("b", "pay", "[2001:db8::1]:443", "") +
			es("c", "pay", "localhost:443", "") + es("d", "pay", "db.localhost:443", ""), "; few: "},
		{"a name of a VirtualOutbound", es("a", "pay", "web.internal:443", "") +
			virtualOutbound("v", "kuma.io/service: web", "{{.s}}.internal", "80"), "; few: "},
		{"exclusive services", es("a", "pay", "pay.example.com:443", ""), "; few: "},
	} {
		docs := meshDoc
		if strings.HasPrefix(tc.what, "exclusive") {
			docs += "meshServices: {mode: Exclusive}\n"
		}
		v := build(t, docs+dps+tc.docs)
		if v.AskedHosts != nil {
			t.Errorf("%s: proxies ask for %v without a resolver", tc.what, v.AskedHosts)
		}
		if of, _ := v.Outbounds(v.Dataplane("plain")); v.ExternalHostsIn(of) != nil {
			t.Errorf("%s: a proxy without redirection serves %v", tc.what, v.ExternalHostsIn(of))
		}
		var b strings.Builder
		list, _ := v.Outbounds(v.Dataplane("web"))
		for _, h := range v.Hostnames() {
			if h.Origin != mesh.OriginHost {
				continue
			}
			var ports []uint16
			for _, p := range h.Ports {
				ports = append(ports, p.Number)
			}
			fmt.Fprintf(&b, "%s %v:", h.Name, ports)
			for _, o := range list {
				if slices.Contains(h.Addrs, o.Address) {
					fmt.Fprintf(&b, " %d=%s", o.Port, o.Service.Tag)
				}
			}
		}
		few, _ := v.Outbounds(v.Dataplane("few"))
		b.WriteString("; few: " + strings.Join(v.ExternalHostsIn(few), " "))
		for _, w := range v.Warnings {
			if w.Resource.Kind == "ExternalService" {
				b.WriteString("; ! " + w.Reason)
			}
		}
		if b.String() != tc.want {
			t.Errorf("%s: %s, want %s", tc.what, b.String(), tc.want)
		}
	}
}
