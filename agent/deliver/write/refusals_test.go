package write_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/deliver/write"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// delete deletes a resource over the API.
func (f *fixture) delete(k resource.Key) *api.Error {
	f.t.Helper()
	_, e := f.writer.Write(f.t.Context(), &write.Request{Delete: []resource.Key{k}, Author: "me", Waiting: waiting{},
		If: func(store.Record, bool) *api.Error { return nil }})
	return e
}

// TestRefusedWrites checks the problem of each refused write, and that it stores nothing.
func TestRefusedWrites(t *testing.T) {
	mesh := resource.Key{Kind: "Mesh", Name: "default"}
	limits := resource.Key{Kind: "MeshCircuitBreaker", Mesh: "default", Name: "limits"}
	for name, c := range map[string]struct {
		write  func(f *fixture) *api.Error
		typ    string
		detail string
	}{
		"mesh with resources": {func(f *fixture) *api.Error { return f.delete(mesh) }, api.ProblemInUse,
			`mesh "default" still has 3 resources`},
		"missing resource": {func(f *fixture) *api.Error { return f.delete(f.key()) }, api.ProblemNotFound,
			"does not exist"},
		"deletion of a file's resource": {func(f *fixture) *api.Error { return f.delete(limits) },
			api.ProblemOwned, "a.yaml"},
		"change of a file's resource": {func(f *fixture) *api.Error {
			_, e := f.put(agenttest.Breaker(2), write.Request{})
			return e
		}, api.ProblemOwned, "a.yaml"},
		"unknown mesh": {func(f *fixture) *api.Error {
			_, e := f.put(strings.Replace(idle(1), "mesh: default", "mesh: none", 1), write.Request{})
			return e
		}, api.ProblemNotFound, "it is referenced by MeshTimeout/none/idle"},
		"public suffix": {func(f *fixture) *api.Error {
			_, e := f.put("type: HostnameGenerator\nname: uk\nspec: {selector: {meshService: {matchLabels: {}}}, "+
				"template: '{{ .DisplayName }}.co.uk'}", write.Request{DryRun: true})
			if e == nil || len(e.InvalidParameters) != 1 || e.InvalidParameters[0].Field != "spec.template" ||
				!strings.Contains(e.InvalidParameters[0].Reason, "public suffix") {
				f.t.Errorf("a public suffix: %+v", e)
			}
			return e
		}, api.ProblemDocument, "nothing was stored"},
		"stale secrets": {func(f *fixture) *api.Error {
			_, e := f.put(idle(1), write.Request{Kept: map[resource.Key]uint64{f.key(): 7}})
			return e
		}, api.ProblemStale, "its stored secrets cannot be reused"},
		"full audit log": {func(f *fixture) *api.Error {
			f.writer.Auditable = func() error { return errors.New("disk full") }
			_, e := f.put(idle(1), write.Request{})
			return e
		}, api.ProblemAudit, "nothing was stored: the audit log cannot be written: disk full"},
	} {
		f := newFixture(t)
		f.byFile(1)
		before := f.store.Snapshot().Revision()
		e := c.write(f)
		if e == nil || e.Type != c.typ || !strings.Contains(e.Detail, c.detail) {
			t.Errorf("%s: %v, want %s with %q", name, e, c.typ, c.detail)
		}
		if now := f.store.Snapshot().Revision(); now != before || len(f.offered) > 0 {
			t.Errorf("%s: revision %d after %d, %d offers", name, now, before, len(f.offered))
		}
	}
}

// TestDelete checks that a deletion is stored and reported.
func TestDelete(t *testing.T) {
	f := newFixture(t)
	if _, e := f.put(idle(1), write.Request{}); e != nil {
		t.Fatal(e)
	}
	if e := f.delete(f.key()); e != nil {
		t.Fatal(e)
	}
	if _, exists := f.store.Snapshot().Get(f.key()); exists {
		t.Error("the resource still exists")
	}
}

// TestLeaveOut checks that each omitted part is removed from a diff, and nothing else.
func TestLeaveOut(t *testing.T) {
	for _, omit := range [][]string{nil, {"items"}, {"patch"}, {"items", "patch"}} {
		full := api.PartDiff{Items: make([]api.ItemDiff, 1)}
		d := &api.Diff{Proxies: []api.ProxyDiff{{Config: full, Rules: full}}}
		write.LeaveOut(d, omit)
		for _, section := range []api.PartDiff{d.Proxies[0].Config, d.Proxies[0].Rules} {
			if (len(section.Items) == 0) != slices.Contains(omit, "items") ||
				(section.Patch != nil) != slices.Contains(omit, "patch") {
				t.Errorf("%q: %+v", omit, section)
			}
		}
	}
}
