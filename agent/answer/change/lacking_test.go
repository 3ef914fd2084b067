package change_test

import (
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/answer/change"
)

// TestLacking checks the warnings about policies of a change without effect.
func TestLacking(t *testing.T) {
	const proxies = "{type: Mesh, name: default}\n---\n" +
		"{type: Dataplane, mesh: default, name: redis, networking: {address: 10.0.0.3, inbound: [{port: 6379, " +
		"tags: {kuma.io/service: redis, kuma.io/protocol: tcp}}]}}\n---\n" +
		"{type: Dataplane, mesh: default, name: web, networking: {address: 10.0.0.1, inbound: [{port: 80, " +
		"tags: {kuma.io/service: web}}], outbound: [{port: 90, tags: {kuma.io/service: redis}}]}}\n---\n"
	const retry = "{type: MeshRetry, mesh: default, name: r, spec: {targetRef: {kind: Mesh}, " +
		"to: [{targetRef: {kind: Mesh}, default: {CONF}}]}}"
	for conf, want := range map[string]string{
		"http: {numRetries: 3}":       "no effect on any proxy",
		"tcp: {maxConnectAttempt: 3}": "",
	} {
		q := change.Question{Put: decode(t, proxies+strings.Replace(retry, "CONF", conf, 1)), NewMesh: newMesh}
		v, err := change.Verify(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		got, unknown := v.Lacking(nil)
		if unknown != 0 || len(got) != min(1, len(want)) {
			t.Errorf("%s: %+v, %d unknown", conf, got, unknown)
		}
		if len(got) == 1 && (got[0].Resource.Name != "r" || !strings.HasPrefix(got[0].Reason, want)) {
			t.Errorf("%s: %+v", conf, got)
		}
		if _, unknown := v.Lacking(func() bool { return true }); unknown != 1 {
			t.Errorf("%s: %d unknown without time", conf, unknown)
		}
	}
}
