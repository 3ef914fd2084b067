package mesh_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/virtualip"
)

// virtualOutbound returns a VirtualOutbound with the service and the version as parameters.
func virtualOutbound(name, match, host, port string) string {
	return fmt.Sprintf("---\ntype: VirtualOutbound\nmesh: default\nname: %s\nselectors: [{match: {%s}}]\nconf: {host: "+
		"%q, port: %q, parameters: [{name: s, tagKey: kuma.io/service}, {name: version}]}\n", name, match, host, port)
}

// virtual formats the names from VirtualOutbounds with their ports and tags, and the status of
// rejected names.
func virtual(t *testing.T, v *mesh.View) string {
	t.Helper()
	var b strings.Builder
	outs, _ := v.Outbounds(v.Dataplane("web"))
	for _, h := range v.Hostnames() {
		if h.Origin != mesh.OriginVirtual {
			continue
		}
		var ports []uint16
		for _, p := range h.Ports {
			ports = append(ports, p.Number)
		}
		fmt.Fprintf(&b, "%s by %s %v:", h.Name, h.Generator.Name, ports)
		for _, o := range outs {
			if o.Address == h.Addrs[0] {
				fmt.Fprintf(&b, " %d=%s%v", o.Port, o.Tags[resource.TagService], o.Subset)
			}
		}
		b.WriteString("\n")
	}
	for _, w := range v.Warnings {
		fmt.Fprintf(&b, "! %s: %s\n", w.Resource.Name, w.Reason)
	}
	return b.String()
}

// TestVirtualHosts checks the names that VirtualOutbounds yield for tags.
func TestVirtualHosts(t *testing.T) {
	version := func(doc, v string) string {
		return strings.Replace(doc, "protocol: http}", "protocol: http, version: "+v+"}", 1)
	}
	dps := version(dataplane("a1", "10.0.0.1", "a", ""), "v1") + version(dataplane("a2", "10.0.0.2", "a", ""), "v2") +
		dataplane("b_c", "10.0.0.3", "b_c", "") + dataplane("web", "10.0.0.4",
		"web", "  transparentProxying: {redirectPortInbound: 15006, redirectPortOutbound: 15001}\n")
	const es = "---\ntype: ExternalService\nmesh: default\nname: e\ntags: {kuma.io/service: out, version: v9}\n" +
		"networking: {address: 'example.com:443'}\n"
	const all = "kuma.io/service: '*'"
	for _, c := range []struct{ what, docs, want string }{
		{"a name for each version; what has none has no name", virtualOutbound("v", all, "{{.s}}.{{.version}}.internal",
			"8080"), "a.v1.internal by v [8080]: 8080=amap[version:v1]\na.v2.internal by v [8080]: 8080=amap[version:v2]\n"},
		{"external services have their service alone", es + virtualOutbound("v", "kuma.io/service: out", "x.{{.s}}", "1") +
			virtualOutbound("w", "version: v9", "x.{{.s}}", "2"), "x.out by v [1]: 1=outmap[]\n"},
		{"several make ports of one name",
			virtualOutbound("v", all, "{{.version}}.all", "81") + virtualOutbound("w", "kuma.io/service: web", "v1.all", "82"),
			"v1.all by v [81 82]: 81=amap[version:v1] 82=webmap[]\nv2.all by v [81]: 81=amap[version:v2]\n"},
		{"of two for one port the one that names most tags has it", virtualOutbound("a", "kuma.io/service: a", "one", "80") +
			virtualOutbound("b", "kuma.io/service: a, version: v2", "one", "80"), "one by b [80]: 80=amap[version:v2]\n" +
			"! a: one:80 leads to kuma.io/service=a, version=v2 by b, and not to kuma.io/service=a, " +
			"version=v1: a port of a name leads to one destination; add parameters to the templates that distinguish them\n"},
		{"what is no host name", virtualOutbound("v", "kuma.io/service: a", "x.{{.version}}.{{.s}}-", "80"), ""},
		{"what is no port", virtualOutbound("v", "kuma.io/service: a", "x", "1{{.version}}"),
			"! v: no name for kuma.io/service \"a\": \"1v1\" is not a port: it is a number from 1 to 65535; " +
				"kuma.io/service \"a\": \"1v2\" is not a port: it is a number from 1 to 65535\n"},
		{"the name that the tag gives leads there", virtualOutbound("v", "kuma.io/service: web", "web.mesh", "7000"),
			"web.mesh by v [7000]: 7000=webmap[]\n"},
		{"the name of another tag", virtualOutbound("v", "kuma.io/service: web", "a.mesh", "7000"),
			"a.mesh by v [7000]: 7000=webmap[]\n! default: two services claim one hostname: a.mesh for the tag service \"a\" " +
				"(it belongs to VirtualOutbound/default/v); change a template, a selector, a name or a tag\n" +
				"! v: two services claim one hostname: a.mesh for the tag service \"a\" (it belongs to " +
				"VirtualOutbound/default/v); change a template, a selector, a name or a tag\n"},
	} {
		rs, faults := kinds.Registry().Decode("test", []byte(meshDoc+dps+c.docs))
		if c.want == "" {
			if len(faults) == 0 {
				t.Errorf("%s: it is taken", c.what)
			}
			continue
		}
		if len(faults) > 0 {
			t.Fatal(c.what, faults)
		}
		v, err := mesh.Build(resource.NewSet(rs), "default", mesh.Options{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := virtual(t, v); got != c.want {
			t.Errorf("%s:\n%swant\n%s", c.what, got, c.want)
		}
		rebuilt, err := mesh.Build(resource.NewSet(rs), "default", mesh.Options{VIPs: virtualip.Options{Known: v.VIPs()}}, v)
		if err != nil {
			t.Fatal(err)
		}
		if rebuilt.Catalog != v.Catalog || rebuilt.VIPs() != v.VIPs() || &rebuilt.Hostnames()[0] != &v.Hostnames()[0] {
			t.Errorf("%s: the next view is another one", c.what)
		}
	}
	v := build(t, meshDoc+dps+virtualOutbound("v", all, "{{.s}}.x", "80"))
	gone := build(t, meshDoc+dps)
	if v.Catalog == gone.Catalog {
		t.Error("the catalog does not depend on VirtualOutbounds")
	}
	if got := virtual(t, build(t, meshDoc+"meshServices: {mode: Exclusive}\n"+dps+
		virtualOutbound("v", all, "{{.s}}.x", "80"))); strings.Contains(got, " by v [") {
		t.Errorf("where MeshServices replace tags:\n%s", got)
	}
}

// TestVirtualHostsOfOtherZones checks names for services behind ingresses of other zones. They
// appear beside those of the node's zone, also for the same service. Services that the zone's own
// ingress offers, and services of another mesh, yield none.
func TestVirtualHostsOfOtherZones(t *testing.T) {
	const at = "address: 10.9.0.1, port: 10001, advertisedAddress: 192.0.2.1, advertisedPort: 10001"
	of := func(mesh, service, version string) string {
		return "{mesh: " + mesh + ", instances: 2, tags: {kuma.io/service: " + service +
			", kuma.io/protocol: http, version: " + version + "}}"
	}
	docs := strictMesh + dataplane("web", "10.0.0.4",
		"web", "  transparentProxying: {redirectPortInbound: 15006, redirectPortOutbound: 15001}\n") +
		strings.Replace(dataplane("a1", "10.0.0.1", "a", ""), "protocol: http}", "protocol: http, version: v1}", 1) +
		zoneIngress("east", "east", at, of("default", "a", "v2")+", "+of("default", "far", "v7")+", "+
			of("other", "else", "v8")) + zoneIngress("own", "west", at, of("default", "mine", "v9")) +
		virtualOutbound("v", "kuma.io/service: '*'", "{{.s}}.{{.version}}.internal", "8080")
	got := virtual(t, inZone(t, docs, mesh.Options{Zone: "west"}))
	want := "a.v1.internal by v [8080]: 8080=amap[version:v1]\na.v2.internal by v [8080]: 8080=amap[version:v2]\n" +
		"far.v7.internal by v [8080]: 8080=farmap[version:v7]\n"
	if got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}
