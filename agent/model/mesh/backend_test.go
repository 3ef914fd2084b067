package mesh_test

import (
	"fmt"
	"strings"
	"testing"
)

// TestOutboundBackends checks which service an outbound's reference resolves to, and the warnings
// about references that do not resolve.
func TestOutboundBackends(t *testing.T) {
	k8s := func(kind, name, namespace, labels, spec string) string {
		return fmt.Sprintf("---\napiVersion: kuma.io/v1alpha1\nkind: %s\nmetadata: {name: %s, namespace: %s, "+
			"labels: {kuma.io/mesh: default, %s}}\nspec: {%s}\n", kind, name, namespace, labels, spec)
	}
	const ports = "selector: {dataplaneTags: {kuma.io/service: a}}, ports: [{port: 80, targetPort: 8080}, {port: 81, " +
		"targetPort: 8080}]"
	services := meshDoc + dataplane("a", "10.0.0.1", "a", "") +
		k8s("MeshService", "redis", "data", "app: redis, tier: db", ports) +
		k8s("MeshService", "redis", "other", "app: redis, tier: cache", ports) +
		k8s("MeshService", "front", "data", "app: front", ports) +
		service("plain", "app: plain", "dataplaneTags: {kuma.io/service: a}", "{port: 80, targetPort: 8080}") +
		"---\ntype: MeshMultiZoneService\nmesh: default\nname: all\nlabels: {app: redis}\nspec:\n" +
		"  selector: {meshService: {matchLabels: {app: redis}}}\n  ports: [{port: 80}]\n" +
		"---\ntype: MeshExternalService\nmesh: default\nname: out\nlabels: {app: out}\nspec:\n" +
		"  match: {type: HostnameGenerator, port: 443, protocol: tcp}\n  endpoints: [{address: 192.0.2.1, port: 443}]\n"
	const left = ": the outbound is ignored"
	for _, c := range []struct{ namespace, ref, want, warning string }{
		{"", "kind: MeshService, name: plain, port: 80", "default_plain__default_msvc_80", ""},
		{"", "kind: MeshService, name: plain, port: 81", "", `there is no MeshService "plain" with port 81` + left},
		{"", "kind: MeshService, name: redis, namespace: data, port: 81", "default_redis_data_default_msvc_81", ""},
		{"", "kind: MeshService, name: redis, namespace: nowhere, port: 80",
			"", `there is no MeshService "redis" in namespace "nowhere" with port 80` + left},
		{"", "kind: MeshService, name: redis.other, port: 80", "default_redis_other_default_msvc_80", ""},
		{"", "kind: MeshService, name: redis, port: 80", "", `there is no MeshService "redis" with port 80` + left},
		{"other", "kind: MeshService, name: redis, port: 80", "default_redis_other_default_msvc_80", ""},
		{"other", "kind: MeshService, name: plain, port: 80", "default_plain__default_msvc_80", ""},
		{"other", "kind: MeshService, name: front, port: 80", "", `there is no MeshService "front" with port 80` + left},
		{"", "kind: MeshService, labels: {app: front}, port: 81", "default_front_data_default_msvc_81", ""},
		{"", "kind: MeshService, labels: {k8s.kuma.io/namespace: other}, port: 80",
			"default_redis_other_default_msvc_80", ""},
		{"", "kind: MeshService, labels: {kuma.io/display-name: redis, tier: cache}, port: 80",
			"default_redis_other_default_msvc_80", ""},
		{"", "kind: MeshService, labels: {kuma.io/env: universal}, port: 80", "default_plain__default_msvc_80", ""},
		{"", "kind: MeshService, labels: {app: redis}, port: 80", "default_redis_data_default_msvc_80",
			"2 services match MeshService with labels app=redis with port 80, but an outbound leads to one: " +
				"redis.data, the first by name, is used instead of redis.other; give a name, or labels that match only one"},
		{"", "kind: MeshService, labels: {kuma.io/mesh: default}, port: 80", "default_front_data_default_msvc_80",
			"front.data, the first by name, is used instead of plain, redis.data, redis.other;"},
		{"", "kind: MeshService, labels: {app: redis}, port: 99",
			"", "there is no MeshService with labels app=redis with port 99" + left},
		{"", "kind: MeshService, labels: {app: redis, tier: none}, port: 80",
			"", "there is no MeshService with labels app=redis, tier=none with port 80" + left},
		{"", "kind: MeshMultiZoneService, labels: {app: redis}, port: 80", "default_all__default_mzsvc_80", ""},
		{"", "kind: MeshMultiZoneService, name: all, port: 81",
			"", `there is no MeshMultiZoneService "all" with port 81` + left},
		{"", "kind: MeshExternalService, name: out", "default_out__default_extsvc_443", ""},
		{"", "kind: MeshExternalService, labels: {app: out}", "default_out__default_extsvc_443", ""},
		{"", "kind: MeshGateway, name: plain, port: 80", "", "unknown kind of service MeshGateway: use one of " +
			"MeshService, MeshExternalService, MeshMultiZoneService; the outbound is ignored"},
	} {
		t.Run(c.ref, func(t *testing.T) {
			web := dataplane("web", "10.0.0.2", "web", "  outbound:\n  - {port: 7, backendRef: {"+c.ref+"}}\n")
			name := "web"
			if c.namespace != "" {
				web = strings.Replace(web, "name: web\n", "name: web\nlabels: {k8s.kuma.io/namespace: "+c.namespace+"}\n", 1)
			}
			v := build(t, services+web)
			out, warnings := v.Outbounds(v.Dataplane(name))
			var got string
			for _, o := range out {
				got += o.Service.ID.Name
			}
			if got != c.want {
				t.Errorf("it leads to %q, want %q", got, c.want)
			}
			if c.warning == "" && len(warnings) > 0 || c.warning != "" &&
				(len(warnings) != 1 || !strings.Contains(warnings[0].Reason, "networking.outbound[0].backendRef: ") ||
					!strings.Contains(warnings[0].Reason, c.warning)) {
				t.Errorf("warnings %v, want one with %q", warnings, c.warning)
			}
		})
	}
}
