package change_test

import (
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/answer/change"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
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
		// the warning of the check is part of it
		"http: {numRetries: 3}":       "no effect on any proxy: to[0].default: http has no effect: redis",
		"tcp: {maxConnectAttempt: 3}": "",
	} {
		q := change.Question{Put: decode(t, proxies+strings.Replace(retry, "CONF", conf, 1)), NewMesh: newMesh}
		v, err := change.Verify(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		unknown := v.Lacking(nil)
		var got []mesh.Warning
		for _, w := range v.Warnings {
			if w.Resource.Kind == "MeshRetry" {
				got = append(got, w)
			}
		}
		if unknown != 0 || len(got) != min(1, len(want)) {
			t.Errorf("%s: %+v, %d unknown", conf, got, unknown)
		}
		if len(got) == 1 && (got[0].Resource.Name != "r" || !strings.HasPrefix(got[0].Reason, want)) {
			t.Errorf("%s: %+v", conf, got)
		}
		if unknown := v.Lacking(func() bool { return true }); unknown != 1 {
			t.Errorf("%s: %d unknown without time", conf, unknown)
		}
	}
}

// TestLackingOnce checks that a reason that another warning gives is not repeated.
func TestLackingOnce(t *testing.T) {
	const proxy = "{type: Mesh, name: default}\n---\n" +
		"{type: Dataplane, mesh: default, name: web, networking: {address: 10.0.0.1, inbound: [{port: 80, " +
		"servicePort: 8080, tags: {kuma.io/service: web}}]}}\n---\n"
	const permission = "{type: MeshTrafficPermission, mesh: default, name: p, spec: {targetRef: {kind: Mesh}, " +
		"from: [{targetRef: {kind: Mesh}, default: {action: Allow}}]}}"
	const timeouts = "{type: MeshTimeout, mesh: default, name: wide, spec: {targetRef: {kind: Mesh}, " +
		"rules: [{default: {connectionTimeout: 3s}}]}}\n---\n" +
		"{type: MeshTimeout, mesh: default, name: narrow, spec: {targetRef: {kind: Dataplane, name: web}, " +
		"rules: [{default: {connectionTimeout: 4s}}]}}"
	for _, c := range []struct {
		now, put, want string
	}{{"", proxy + permission, "mesh default has no mTLS"}, {proxy, permission, "mesh default has no mTLS"},
		{proxy, timeouts, "no effect on any proxy: "}} {
		v, err := change.Verify(t.Context(), change.Question{Set: resource.NewSet(decode(t, c.now)), Put: decode(t, c.put),
			NewMesh: newMesh})
		if err != nil {
			t.Fatal(err)
		}
		v.Lacking(nil)
		if len(v.Warnings) != 1 || !strings.HasPrefix(v.Warnings[0].Reason, "no effect on any proxy: ") ||
			!strings.Contains(v.Warnings[0].Reason, c.want) {
			t.Errorf("%q: %+v", c.put, v.Warnings)
		}
	}
}
