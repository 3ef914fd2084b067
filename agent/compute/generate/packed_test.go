package generate_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

// TestMemoryIsSharedNotChanged checks that proxies of different services with the same access log
// policy have packed resources, and that their bytes and versions equal those that are generated
// without a memo.
func TestMemoryIsSharedNotChanged(t *testing.T) {
	var docs bytes.Buffer
	docs.WriteString("{type: Mesh, name: default}\n---\n" +
		"{type: MeshAccessLog, mesh: default, name: l, spec: {targetRef: {kind: Mesh}, to: [{targetRef: {kind: Mesh}, " +
		"default: {backends: [{type: File, file: {path: /var/log/mesh.log}}]}}]}}\n")
	const proxies = 4
	for k := range proxies {
		fmt.Fprintf(&docs, "---\n{type: Dataplane, mesh: default, name: web-%d, networking: {address: 10.0.0.%d, "+
			"inbound: [{port: 80, tags: {kuma.io/service: web-%[1]d, kuma.io/protocol: http}}], outbound: [", k*100, k+1)
		for i := range 5 {
			fmt.Fprintf(&docs, "{port: %d, tags: {kuma.io/service: web-%d}}, ", 1000+i, i*100)
		}
		docs.WriteString("]}}\n")
	}
	m, memo := meshOf(t, decoded(t, docs.String()), nil), generate.NewMemo()
	packed, whole, kept := 0, 0, 0
	for k := range proxies {
		in := generate.Input{Mesh: m, Name: fmt.Sprintf("web-%d", k*100), Flavor: node.FlavorEnvoy}
		with, err := generate.Generate(in, nil, memo)
		if err != nil {
			t.Fatal(err)
		}
		without, err := generate.Generate(in, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if with.Sealed.Versions != without.Sealed.Versions {
			t.Fatalf("%s: versions are %q with a memo, %q without", in.Name, with.Sealed.Versions, without.Sealed.Versions)
		}
		for rank, list := range without.Sealed.Resources {
			for i, want := range list {
				got := with.Sealed.Resources[rank][i]
				if got.Name != want.Name || got.Version != want.Version || !bytes.Equal(got.Body(), want.Body()) ||
					got.Len() != want.Len() {
					t.Errorf("%s: %s differs", in.Name, want.Name)
				}
				if k > 0 && got.IsPacked() {
					packed, whole, kept = packed+1, whole+want.Len(), kept+got.Kept()
				}
			}
		}
	}
	if packed < 4*(proxies-1) || kept > whole/4 { // four of the five services exist
		t.Errorf("%d resources are packed, %d bytes as %d", packed, whole, kept)
	}
}
