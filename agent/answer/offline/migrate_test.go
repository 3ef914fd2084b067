package offline_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nearside-mesh/nearside/agent/answer/offline"
)

// guide reads files of examples/migration.
func guide(t *testing.T, files ...string) *offline.Offline {
	t.Helper()
	var texts []offline.Text
	for _, f := range files {
		data, err := os.ReadFile("../../../examples/migration/" + f)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, offline.Text{Name: f, Data: data})
	}
	o, faults := offline.Read(texts)
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	return o
}

func migrate(t *testing.T, o *offline.Offline, opts offline.MigrateOptions) *offline.Migration {
	t.Helper()
	opts.Mesh = "default"
	m, err := o.Migrate(opts)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// live lists the changes on a dataplane after the new policies are live.
func live(m *offline.Migration, dataplane string) []string {
	var out []string
	for _, p := range m.Dataplanes {
		if p.Name != dataplane {
			continue
		}
		for _, c := range p.Live {
			typ := c.Type[strings.LastIndexByte(c.Type, '.')+1:]
			out = append(out,
				fmt.Sprintf("%s %s %s %s %s", c.Op, typ, c.Name, c.Field[strings.LastIndexByte(c.Field, '.')+1:], c.Value))
		}
	}
	return out
}

func TestMigrateChangesNothing(t *testing.T) {
	for _, files := range [][]string{
		{"base/mesh.yaml", "base/dataplanes.yaml", "circuitbreaker.yaml"},
		{"base/mesh.yaml", "base/dataplanes.yaml", "proxytemplate.yaml"},
		{"base/dataplanes.yaml", "trafficlog.yaml"},
	} {
		m := migrate(t, guide(t, files...), offline.MigrateOptions{})
		if len(m.Policies) != 1 || len(m.Policies[0].Notes) > 0 || len(m.Without) > 0 || len(m.Dataplanes) != 3 {
			t.Errorf("%v: %+v", files, m)
		}
		for _, p := range m.Dataplanes {
			if len(p.Live) > 0 || len(p.Deleted) > 0 {
				t.Errorf("%v: %s changes: %+v, then %+v", files, p.Name, p.Live, p.Deleted)
			}
		}
	}
}

// TestMigrateTimeouts checks the changes that the specification lists. It counts the two fields of
// the inbound cluster as one.
func TestMigrateTimeouts(t *testing.T) {
	o := guide(t, "base/mesh.yaml", "base/dataplanes.yaml", "timeout.yaml", "route-all.yaml")
	m := migrate(t, o, offline.MigrateOptions{Kinds: []string{"Timeout"}})
	want := []string{
		`add Cluster backend_kuma-demo_svc_3001 maxConnectionDuration "0s"`,
		`add Cluster frontend_kuma-demo_svc_8080 maxConnectionDuration "0s"`,
		`add Cluster localhost:8080 maxConnectionDuration "0s"`,
		`add Cluster localhost:8080 maxStreamDuration "0s"`,
		`replace Listener inbound:10.42.0.29:8080 idleTimeout "0s"`,
		`add Listener inbound:10.42.0.29:8080 requestHeadersTimeout "0s"`,
		`replace Listener outbound:10.43.13.71:3001 idleTimeout "0s"`,
		`add Listener outbound:10.43.13.71:3001 requestHeadersTimeout "0s"`,
		`replace Listener outbound:10.43.138.50:8080 idleTimeout "0s"`,
		`add Listener outbound:10.43.138.50:8080 requestHeadersTimeout "0s"`,
		`add RouteConfiguration inbound:10.42.0.29:8080 idleTimeout "3600s"`,
		`add RouteConfiguration outbound:10.43.13.71:3001 idleTimeout "35s"`,
		`add RouteConfiguration outbound:10.43.138.50:8080 idleTimeout "25s"`,
	}
	if diff := cmp.Diff(want, live(m, "frontend")); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for _, p := range m.Dataplanes {
		for _, c := range p.Live {
			if len(c.Why) == 0 {
				t.Errorf("no reason for %+v", c)
			}
		}
		if len(p.Deleted) > 0 {
			t.Errorf("deleting Timeouts changes %+v", p.Deleted)
		}
	}
}

func TestMigratePermissions(t *testing.T) {
	m := migrate(t, guide(t, "base/dataplanes.yaml", "mtls.yaml", "trafficpermission.yaml"), offline.MigrateOptions{})
	got := live(m, "redis")
	if len(got) != 1 || !strings.HasPrefix(got[0], "replace Listener inbound:10.42.0.31:6379 policies") ||
		!strings.Contains(got[0], `{"MeshTrafficPermission":`) ||
		!strings.Contains(got[0], "spiffe://default/backend_kuma-demo_svc_3001") ||
		!strings.Contains(got[0], "spiffe://default/frontend_kuma-demo_svc_8080") {
		t.Errorf("redis: %q", got)
	}
	got = live(m, "frontend")
	if len(got) != 2 || !strings.HasPrefix(got[0], "remove Listener inbound:10.42.0.29:8080") ||
		!strings.Contains(got[1], `"envoy.filters.http.rbac"`) {
		t.Errorf("frontend: %q", got)
	}
	if got := live(m, "backend"); len(got) > 0 {
		t.Errorf("backend, which nobody may reach: %q", got)
	}
}

func TestMigrateFaults(t *testing.T) {
	m := migrate(t, guide(t, "base/mesh.yaml", "base/dataplanes.yaml", "faultinjection.yaml"), offline.MigrateOptions{})
	if len(m.Dataplanes) != 3 || len(m.Policies) != 1 {
		t.Fatalf("%d dataplanes and %d policies", len(m.Dataplanes), len(m.Policies))
	}
	for _, p := range m.Dataplanes {
		if len(p.Live)+len(p.Deleted) > 0 {
			t.Errorf("%s: %+v %+v", p.Name, p.Live, p.Deleted)
		}
	}
}

// TestMigrateAgain checks a migration after an earlier one: stored shadow policies are created
// again with the same names, and active ones supersede the legacy policies.
func TestMigrateAgain(t *testing.T) {
	files := []string{"base/mesh.yaml", "base/dataplanes.yaml", "timeout.yaml"}
	first := migrate(t, guide(t, files...), offline.MigrateOptions{})
	names := func(m *offline.Migration) (out []string) {
		for _, p := range m.Policies {
			out = append(out, fmt.Sprint(p.Name, p.Stored))
		}
		return out
	}
	with := func(edit func(string) string) *offline.Migration {
		o := []offline.Text{}
		for _, f := range files {
			data, err := os.ReadFile("../../../examples/migration/" + f)
			if err != nil {
				t.Fatal(err)
			}
			o = append(o, offline.Text{Name: f, Data: data})
		}
		for _, p := range first.Policies {
			o = append(o, offline.Text{Name: p.Name, Data: []byte(edit(string(p.Resource)))})
		}
		all, faults := offline.Read(o)
		if len(faults) > 0 {
			t.Fatal(faults)
		}
		return migrate(t, all, offline.MigrateOptions{})
	}
	want := []string{"1-timeout-to-backendfalse", "1-timeout-to-redisfalse", "2-timeout-globalfalse"}
	if diff := cmp.Diff(want, names(first)); diff != "" {
		t.Fatal(diff)
	}
	shadow := with(func(s string) string { return s })
	for i := range want {
		want[i] = strings.Replace(want[i], "false", "true", 1)
	}
	if diff := cmp.Diff(want, names(shadow)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(live(first, "frontend"), live(shadow, "frontend")); diff != "" {
		t.Errorf("stored shadow policies change the result (-first +second):\n%s", diff)
	}
	acting := with(func(s string) string { return strings.Replace(s, `,"labels":{"kuma.io/effect":"shadow"}`, "", 1) })
	if len(acting.Policies) > 0 || len(acting.Without) != 3 {
		t.Errorf("nothing is left to migrate, got %+v", acting)
	}
	for _, p := range acting.Dataplanes {
		if len(p.Live) > 0 || len(p.Deleted) > 0 {
			t.Errorf("%+v", p)
		}
	}
}

// TestMigrateBesideOthers checks a change without a reason: a policy of the new kind is already
// active.
func TestMigrateBesideOthers(t *testing.T) {
	o, faults := offline.Read([]offline.Text{{Name: "x", Data: []byte(`
{type: Mesh, name: default}
---
{type: Dataplane, name: web, networking: {address: 10.0.0.1, inbound: [{port: 80, tags: {kuma.io/service: web, kuma.io/protocol: http}}],
  outbound: [{port: 81, tags: {kuma.io/service: web}}]}}
---
{type: Dataplane, name: db, networking: {address: 10.0.0.2, inbound: [{port: 80, tags: {kuma.io/service: db}}]}}
---
{type: MeshTimeout, name: own, spec: {targetRef: {kind: MeshService, name: web}, to: [{targetRef: {kind: Mesh}, default: {http: {requestTimeout: 1s}}}]}}
---
{type: Timeout, name: all, sources: [{match: {kuma.io/service: '*'}}], destinations: [{match: {kuma.io/service: '*'}}], conf: {connectTimeout: 9s}}
`)}})
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	m := migrate(t, o, offline.MigrateOptions{})
	if len(m.Policies) != 1 || !strings.Contains(strings.Join(m.Policies[0].Notes, "\n"), "MeshTimeout/default/own") {
		t.Fatalf("want a policy with a note, got %+v", m)
	}
	for _, p := range m.Dataplanes {
		open := slices.ContainsFunc(p.Live, func(c offline.MigrationChange) bool {
			return len(c.Why) == 0 && c.Field == "connectTimeout" && string(c.Before) == `"5s"` && string(c.Value) == `"9s"`
		})
		if open != (p.Name == "web") {
			t.Errorf("%s: %+v", p.Name, p.Live)
		}
	}
}

func TestMigrateWithoutLegacyPolicies(t *testing.T) {
	m := migrate(t, guide(t, "base/mesh.yaml", "base/dataplanes.yaml"), offline.MigrateOptions{})
	if len(m.Policies)+len(m.Without)+len(m.Dataplanes) > 0 {
		t.Errorf("%+v", m)
	}
	if _, err := guide(t, "base/mesh.yaml").Migrate(offline.MigrateOptions{Mesh: "other"}); err == nil ||
		!strings.Contains(err.Error(), `mesh "other" does not exist`) {
		t.Errorf("a mesh that is not there: %v", err)
	}
	o := guide(t, "base/mesh.yaml", "base/dataplanes.yaml", "timeout.yaml")
	if _, err := o.Migrate(offline.MigrateOptions{Mesh: "default", Dataplanes: []string{"gone"}}); err == nil ||
		!strings.Contains(err.Error(), `no dataplane "gone"`) {
		t.Errorf("a dataplane that is not there: %v", err)
	}
}
