package kinds_test

import (
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// TestLaterKinds checks that the parts of Kuma 2.14 that nearside does not have are refused with
// the version that is to have them and the alternative until then.
func TestLaterKinds(t *testing.T) {
	for _, c := range []struct{ doc, field, reason string }{
		{`{type: MeshIdentity, mesh: default, name: m, spec: {selector: {dataplane: {matchLabels: {}}},
			provider: {type: Bundled, bundled: {insecureAllowSelfSigned: true, autogenerate: {enabled: true}}}}}`,
			"type", "certificates come from mtls of the Mesh: enable a backend there"},
		{`{apiVersion: kuma.io/v1alpha1, kind: MeshIdentity, metadata: {name: m, namespace: kuma-system}, spec: {}}`,
			"kind", "workload identities are planned for"},
		{"{type: MeshTrust, mesh: default, name: z, spec: {trustDomain: a.b, caBundles: []}}", "type", "holds a CA"},
		{"{type: MeshZoneAddress, mesh: default, name: z, spec: {address: 192.0.2.1, port: 10001}}", "type",
			"a ZoneIngress has the public address of its zone"},
		{`{type: Dataplane, mesh: default, name: zp, networking: {address: 192.0.2.9,
			listeners: [{type: ZoneEgress, address: 192.0.2.9, port: 10002}]}}`,
			"networking.listeners", "declare a ZoneIngress or a ZoneEgress"},
		{`{apiVersion: kuma.io/v1alpha1, kind: Dataplane, mesh: default, metadata: {name: zp}, spec: {networking:
			{address: 192.0.2.9, listeners: [{type: ZoneEgress, address: 192.0.2.9, port: 10002}]}}}`,
			"spec.networking.listeners", "declare a ZoneIngress or a ZoneEgress"},
	} {
		rs, faults := kinds.Registry().Decode("", []byte(c.doc))
		if len(rs) > 0 || len(faults) == 0 || faults[0].Field != c.field ||
			!strings.Contains(faults[0].Reason, c.reason) || !strings.Contains(faults[0].Reason, resource.LaterVersion) {
			t.Errorf("%s\nwant a fault at %s with %q and %q, got %v", c.doc, c.field, c.reason, resource.LaterVersion, faults)
		}
	}
}
