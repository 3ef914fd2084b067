package policy_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/compute/successor"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

func TestChangeExplains(t *testing.T) {
	for _, c := range []struct {
		pattern, path string
		want          bool
	}{
		{"Cluster/*/connectTimeout", "Cluster/a/connectTimeout", true},
		{"Cluster/*/connectTimeout", "Cluster/a/b/connectTimeout", false},
		{"Cluster/*/connectTimeout", "Cluster/a", false},
		{"Cluster/**/idle", "Cluster/a/b/c/idle", true},
		{"Cluster/**/idle", "Cluster/idle", true},
		{"Cluster/**/idle", "Cluster/a/idle/b", false},
		{"Cluster/a/**", "Cluster/a", true},
		{"Cluster/a/**", "Cluster/a/b/c", true},
		{"Listener/outbound:*/x", "Listener/outbound:10.0.0.1:80/x", true},
		{"Listener/outbound:*/x", "Listener/inbound:10.0.0.1:80/x", false},
		{"a/b", "a/b/c", false},
	} {
		ch := policy.Change{Path: c.pattern, Before: policy.Any, After: policy.Any}
		if got := ch.Explains(strings.Split(c.path, "/"), "", "1"); got != c.want {
			t.Errorf("%s explains %s: %v", c.pattern, c.path, got)
		}
	}
	ch := policy.Change{Path: "a", Before: "", After: `"0s"`}
	for _, c := range []struct {
		before, after string
		want          bool
	}{{"", `"0s"`, true}, {`"1s"`, `"0s"`, false}, {"", `"1s"`, false}, {"", "", false}} {
		if got := ch.Explains([]string{"a"}, c.before, c.after); got != c.want {
			t.Errorf("from %q to %q: %v", c.before, c.after, got)
		}
	}
}

// old returns an outbound legacy policy.
func old(name, sources, destinations string) string {
	return fmt.Sprintf("{type: Old, name: %s, sources: [%s], destinations: [%s], conf: {a: x}}\n---\n",
		name, sources, destinations)
}

const anyService = "{match: {kuma.io/service: '*'}}"

func service(s string) string { return fmt.Sprintf("{match: {kuma.io/service: %s}}", s) }

// planned formats units as name, targetRef, and destinations, the weakest first.
func planned(t *testing.T, in *policy.MigrateInput, o successor.PlanOptions) []string {
	t.Helper()
	var out []string
	for _, u := range successor.NewPlan(in, o).Units {
		ref, err := json.Marshal(&u.Target)
		if err != nil {
			t.Fatal(err)
		}
		to := strings.Join(u.To, ",")
		if u.All {
			to = "*"
		}
		out = append(out,
			fmt.Sprintf("%s %s → %s", u.Name, strings.NewReplacer(`"`, "", "kuma.io/", "").Replace(string(ref)), to))
	}
	return out
}

func TestPlan(t *testing.T) {
	outbound := successor.PlanOptions{Kinds: []string{"MeshT"}}
	inbound := successor.PlanOptions{Kinds: []string{"MeshT"}, Inbound: true}
	for _, c := range []struct {
		name, docs string
		options    successor.PlanOptions
		taken      []string
		want       []string
	}{
		{name: "names that are in order are kept", options: outbound,
			docs: old("a-backend", anyService, service("backend")) + old("b", anyService, anyService),
			want: []string{"b {kind:Mesh} → *", "a-backend {kind:Mesh} → backend"}},
		{name: "the policy that takes precedence gets the first number", options: outbound,
			docs: old("all", anyService, anyService) + old("to-backend", anyService, service("backend")),
			want: []string{"2-all {kind:Mesh} → *", "1-to-backend {kind:Mesh} → backend"}},
		{name: "targetRef kinds that are in order are kept", options: outbound,
			docs: old("all", anyService, anyService) + old("web", service("web"), anyService) +
				old("v1", "{match: {kuma.io/service: web, version: v1}}", anyService),
			want: []string{"all {kind:Mesh} → *", "web {kind:MeshService,name:web} → *",
				"v1 {kind:MeshServiceSubset,name:web,tags:{version:v1}} → *"}},
		{name: "kinds that are out of order are replaced by one kind", options: outbound,
			// Both have one tag with a value and one without, so the names decide, and a takes
			// precedence.
			docs: old("a", anyService, service("backend")) + old("b", service("web"), anyService),
			want: []string{"b {kind:MeshSubset,tags:{service:web}} → *", "a {kind:MeshSubset} → backend"}},
		{name: "destinations of different precedence are split", options: outbound,
			docs: old("x", anyService, anyService+","+service("backend")),
			want: []string{"x-all-2 {kind:Mesh} → *", "x-all {kind:Mesh} → backend"}},
		{name: "a source that another one covers is not needed", options: outbound,
			docs: old("x", anyService+","+service("web"), anyService),
			want: []string{"x {kind:Mesh} → *"}},
		{name: "a covered source is needed when another policy comes between", options: outbound,
			docs: old("x", anyService+","+service("web"), anyService) + old("y", anyService, service("backend")),
			want: []string{"2-x-all {kind:Mesh} → *", "1-y {kind:Mesh} → backend", "1-x-web {kind:MeshService,name:web} → *"}},
		{name: "destinations with other tags are not migrated", options: outbound,
			docs: old("x", anyService, "{match: {kuma.io/service: backend, version: v1}}")},
		{name: "listed values replace a star", options: outbound,
			docs: old("x", "{match: {kuma.io/service: '*', version: '*'}}", anyService),
			want: []string{"x-v1 {kind:MeshSubset,tags:{version:v1}} → *", "x-v2 {kind:MeshSubset,tags:{version:v2}} → *"}},
		{name: "a name already in use is skipped", options: outbound, taken: []string{"x", "x-2"},
			docs: old("x", anyService, anyService), want: []string{"x-3 {kind:Mesh} → *"}},
		{name: "inbounds of different services do not compete", options: inbound,
			docs: old("b", anyService, service("web")) + old("a", anyService, service("backend")),
			want: []string{"b {kind:MeshService,name:web} → ", "a {kind:MeshService,name:backend} → "}},
		{name: "more tags take precedence over a service", options: inbound,
			docs: old("s", anyService, service("web")) +
				old("t", anyService, "{match: {kuma.io/service: '*', version: v1, kuma.io/protocol: http}}"),
			want: []string{"2-s {kind:MeshSubset,tags:{service:web}} → ",
				"1-t {kind:MeshSubset,tags:{protocol:http,version:v1}} → "}},
	} {
		// Remove the ignored inbound, because a dataplane without inbounds requires other
		// targetRefs.
		docs := strings.Replace(dataplanes, "state: Ignored, ", "", 1) + c.docs
		x := indexOf(t, decode(t, docs), policy.Options{})
		in := &policy.MigrateInput{Index: x, Policies: x.Policies("Old"), NameExists: func(kind, name string) bool {
			return kind == "MeshT" && slices.Contains(c.taken, name)
		}}
		if diff := cmp.Diff(c.want, planned(t, in, c.options)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

func TestPlanWithBareDataplane(t *testing.T) {
	x := index(t, old("x", anyService, anyService))
	in := &policy.MigrateInput{Index: x, Policies: x.Policies("Old")}
	want := []string{"x {kind:MeshSubset} → *"}
	if diff := cmp.Diff(want, planned(t, in, successor.PlanOptions{Kinds: []string{"MeshT"}})); diff != "" {
		t.Errorf("kind Mesh selects the dataplane, and the sources do not (-want +got):\n%s", diff)
	}
}

func TestPlanDropsSuperseded(t *testing.T) {
	x := index(t, old("all", anyService, anyService)+old("web", service("web"), anyService)+
		mesht("new", "{kind: MeshService, name: web}", "to: [{targetRef: {kind: Mesh}, default: {a: x}}]"))
	in := &policy.MigrateInput{Index: x, Policies: x.Policies("Old")}
	by := func(d *resource.Resource) *resource.Resource {
		for _, r := range x.Ruled(d, "MeshT") {
			return r
		}
		return nil
	}
	p := successor.NewPlan(in, successor.PlanOptions{Kinds: []string{"MeshT"}, SupersededBy: by})
	if len(p.Units) != 1 || p.Units[0].Policy.Name != "all" ||
		!strings.Contains(strings.Join(p.Units[0].Notes, ";"), "MeshT/default/new") {
		t.Errorf("want the active policy with a note, got %+v", p.Units)
	}
	if len(p.Without) != 1 || p.Without[0].Policy.Name != "web" ||
		!strings.Contains(p.Without[0].Why, "MeshT/default/new supersedes") {
		t.Errorf("want the other policy with the one that supersedes it, got %+v", p.Without)
	}
}

func TestNamesAreValid(t *testing.T) {
	long := strings.Repeat("x", 250)
	x := index(t, old(long, service("Web_1.Svc:80")+","+service("web"), anyService)+old(long+"y", anyService, anyService))
	in := &policy.MigrateInput{Index: x, Policies: x.Policies("Old")}
	seen := map[string]bool{}
	for _, u := range successor.NewPlan(in, successor.PlanOptions{Kinds: []string{"MeshT"}}).Units {
		if seen[u.Name] {
			t.Errorf("%s is not unique", u.Name)
		}
		seen[u.Name] = true
		// decode fails if the name is invalid.
		decode(t, mesht(u.Name, "{kind: Mesh}", "to: [{targetRef: {kind: Mesh}, default: {a: x}}]"))
	}
	if len(seen) != 3 {
		t.Errorf("want three names, got %v", seen)
	}
}

func TestClosure(t *testing.T) {
	web, a, b := map[string]string{"s": "web"}, map[string]string{"t": "a"}, map[string]string{"t": "b"}
	got, whole := successor.Closure([]map[string]string{a, web, b, web}, 10)
	want := []map[string]string{web, a, b, {"s": "web", "t": "a"}, {"s": "web", "t": "b"}}
	if diff := cmp.Diff(want, got); diff != "" || !whole {
		t.Errorf("complete: %v (-want +got):\n%s", whole, diff)
	}
	if got, whole := successor.Closure([]map[string]string{a, web, b}, 4); whole || len(got) < 4 {
		t.Errorf("limit of four groups exceeded: %v", got)
	}
}
