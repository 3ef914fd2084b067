package httpapi_test

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/serve/httpapi"
)

// quarrel is a pool whose nodes list conflicts.
type quarrel struct {
	crowd
	own   []api.Conflict
	other []api.NodeConflicts

	answers []api.NodeAnswer
}

func (q *quarrel) Conflicts() []api.Conflict { return q.own }
func (q *quarrel) AskOthers(context.Context, []byte, time.Duration) []api.NodeAnswer {
	return q.answers
}
func (q *quarrel) ConflictsElsewhere(context.Context) []api.NodeConflicts { return q.other }

func conflict(id, mesh string) api.Conflict {
	return api.Conflict{ID: id, State: api.ConflictLost, Key: resource.Key{Kind: "MeshTimeout", Mesh: mesh, Name: "t"}}
}

// TestConflictsOfAllNodes: a version that several nodes list is one item with their names, and
// nodes without a complete answer are named.
func TestConflictsOfAllNodes(t *testing.T) {
	list := func(c ...api.Conflict) (out []api.ConflictItem) {
		for _, x := range c {
			out = append(out, api.NewConflictItem(x))
		}
		return out
	}
	pool := &quarrel{own: []api.Conflict{conflict("1", "default")}, other: []api.NodeConflicts{
		{Node: "b", Items: list(conflict("1", "default"), conflict("1", "shop"))},
		{Node: "c", Items: list(conflict("1", "shop"), conflict("2", "default")), Missing: "it sent 2 of 9"},
		{Node: "d", Missing: "it has not responded"},
	}}
	a := start(t, func(o *httpapi.Options) { o.Pool, o.Info.Node = pool, "a" })
	var got api.Conflicts
	if err := json.Unmarshal([]byte(a.do("GET", "/v1/conflicts", "").body), &got); err != nil || len(got.Items) != 1 ||
		got.Nodes != 0 || got.Items[0].FoundOn != nil {
		t.Errorf("of this node: %+v %v", got, err)
	}
	if err := json.Unmarshal([]byte(a.do("GET", "/v1/conflicts?allNodes=true", "").body), &got); err != nil {
		t.Fatal(err)
	}
	want := []struct {
		id, mesh string
		on       []string
	}{{"1", "default", []string{"a", "b"}}, {"1", "shop", []string{"b", "c"}}, {"2", "default", []string{"c"}}}
	if len(got.Items) != len(want) || got.Nodes != 4 {
		t.Fatalf("%+v", got)
	}
	for i, w := range want {
		if x := got.Items[i]; x.ID != w.id || x.Mesh != w.mesh || !slices.Equal(x.FoundOn, w.on) {
			t.Errorf("item %d: %+v", i, x)
		}
	}
	if !slices.Equal(got.Unanswered, []api.LateNode{{Name: "c", Reason: "it sent 2 of 9"},
		{Name: "d", Reason: "it has not responded"}}) || !slices.Equal(got.Unasked, []string{"gone"}) {
		t.Errorf("%+v %v", got.Unanswered, got.Unasked)
	}
	alone := start(t)
	if got := alone.do("GET", "/v1/conflicts?allNodes=true", ""); got.status != 400 {
		t.Errorf("without a pool: %d %s", got.status, got.body)
	}
}

// TestConflictsHideResources checks that only senders who may get a resource see its versions.
func TestConflictsHideResources(t *testing.T) {
	c := conflict("1", "default")
	c.Resource = &resource.Resource{Key: c.Key, Spec: &resource.Mesh{}}
	roles := append(slices.Clone(testRoles), access.Role{Name: "watch", Subjects: []access.Matcher{{Token: "watch"}},
		Allow: []access.Allow{{Kinds: []string{"Dataplane"}, Verbs: []string{"inspect"}}}})
	a := startTCP(t, func(o *httpapi.Options) {
		o.Access = httpapi.Access{Roles: rolesOf(t, access.RoleOptions{Roles: roles, GID: -1}), Verify: subjects}
		o.Pool = &quarrel{own: []api.Conflict{c}}
	})
	for who, want := range map[string]bool{"ops": true, "viewer": true, "watch": false} {
		var got api.Conflicts
		text := a.do("GET", "/v1/conflicts", "", as(who)).body
		err := json.Unmarshal([]byte(text), &got)
		if err != nil || len(got.Items) != 1 || (got.Items[0].Resource != nil) != want {
			t.Errorf("%s: %s %v", who, text, err)
		}
	}
}
