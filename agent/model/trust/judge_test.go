package trust_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/trust"
	"github.com/nearside-mesh/nearside/gossip/engine"
	"github.com/nearside-mesh/nearside/gossip/engine/sign"
)

// TestRecords checks records against keys, roles, features, and dates.
func TestRecords(t *testing.T) {
	s := enforcing(t)
	for name, c := range map[string]struct {
		put  put
		want string
	}{
		"operator":                 {put{kind: "MeshTimeout", mesh: "default", name: "x", by: "alice"}, ""},
		"operator deletes":         {put{kind: "Mesh", name: "default", by: "alice", deleted: true}, ""},
		"unsigned":                 {put{kind: "MeshTimeout", mesh: "default", name: "x"}, "not signed"},
		"unknown key":              {put{kind: "MeshTimeout", mesh: "default", name: "x", by: "mallory"}, "grants no role"},
		"root":                     {put{kind: "MeshTimeout", mesh: "default", name: "x", by: "a"}, "root key a"},
		"this node without a role": {put{kind: "MeshTimeout", mesh: "default", name: "x", by: "self"}, "--sign KEY"},
		"node with a role":         {put{kind: "MeshTimeout", mesh: "default", name: "x", by: "n1"}, ""},
		"in the role":              {put{kind: "MeshAccessLog", mesh: "default", name: "log-1", by: "bob"}, ""},
		"update in the role":       {put{kind: "MeshAccessLog", mesh: "default", name: "log-1", by: "bob", update: true}, ""},
		"another kind": {put{kind: "MeshTimeout", mesh: "default", name: "log-1", by: "bob"},
			"the role logs of bob"},
		"another mesh": {put{kind: "MeshAccessLog", mesh: "other", name: "log-1", by: "bob"}, "does not allow"},
		"another name": {put{kind: "MeshAccessLog", mesh: "default", name: "x", by: "bob"}, "does not allow"},
		"another verb": {put{kind: "MeshAccessLog", mesh: "default", name: "log-1", by: "bob", deleted: true},
			"delete"},
		"a danger feature": {put{kind: "MeshAccessLog", mesh: "default", name: "log-1", body: "lua", by: "bob"},
			"patch-unsafe"},
		"features of *": {put{kind: "MeshProxyPatch", mesh: "default", name: "p", body: "lua", by: "alice"}, ""},
		"before its validity": {put{kind: "MeshAccessLog", mesh: "default", name: "log-1", by: "bob",
			at: start.AddDate(0, -1, 0)}, "valid only from"},
		"after its validity": {put{kind: "MeshAccessLog", mesh: "default", name: "log-1", by: "bob",
			at: start.AddDate(0, 1, 0)}, "expired"},
		"a heal of a root": {put{kind: trust.KindHeal, name: "01", by: "a"}, ""},
		"a heal of an operator": {put{kind: trust.KindHeal, name: "01", by: "alice"},
			"not signed by a root key"},
	} {
		wantReason(t, name, s.Record(record(t, c.put)), c.want)
	}
}

// TestModes checks that a reason refuses a record only in the mode enforce, and that the stricter
// of the two modes applies.
func TestModes(t *testing.T) {
	r := record(t, put{kind: "MeshTimeout", mesh: "default", name: "x", by: "mallory"})
	heal := record(t, put{kind: trust.KindHeal, name: "01", by: "mallory"})
	for _, config := range trust.Modes {
		for _, file := range trust.Modes {
			s := accepted(t, trust.New(trust.Options{Cluster: "c", Mode: config}))
			if config == trust.ModeEnforce {
				s, _ = trust.New(trust.Options{Cluster: "c", Mode: config}).Adopt(signed(t, document(1, file, ""), "a"))
			} else {
				s = accepted(t, s, signed(t, document(1, file, ""), "a"))
			}
			what := fmt.Sprintf("config %s, file %s", config, file)
			want := map[string]string{trust.ModeEnforce: "grants no role"}[trust.Stricter(config, file)]
			wantReason(t, what, s.Record(r), want)
			wantReason(t, what+", listed", s.Explain(r), "grants no role")
			if got := s.Record(heal) == ""; got != (s.Mode() == trust.ModeOff) {
				t.Errorf("%s: a heal statement of a member is permitted: %v", what, got)
			}
		}
	}
}

// TestNoAnchor checks that a node whose config says enforce accepts nothing before it has a trust
// file, and that only its operator can give it the first one.
func TestNoAnchor(t *testing.T) {
	file := signed(t, document(1, trust.ModeOff, ""), "a")
	s := trust.New(trust.Options{Cluster: "c", Mode: trust.ModeEnforce, Anchored: true})
	for _, p := range []put{{kind: "MeshTimeout", mesh: "default", name: "x", by: "alice"},
		{kind: trust.KindFile, name: trust.FileName, body: string(file), by: "a"},
		{kind: trust.KindEnrollment, name: id("n1"), body: "{}", by: "a"}} {
		if s.Record(record(t, p)) == "" {
			t.Errorf("%s is permitted without a trust file", p.kind)
		}
	}
	if _, err := s.Accept(file); err == nil {
		t.Error("the node accepts the first trust file of a peer")
	}
	s, err := s.Adopt(file)
	if err != nil {
		t.Fatal(err)
	}
	wantReason(t, "operator", s.Record(record(t, put{kind: "MeshTimeout", mesh: "default", name: "x", by: "alice"})), "")
}

// TestRevoked checks which records of a revoked key stay in force.
func TestRevoked(t *testing.T) {
	at := func(d time.Duration, name string) *engine.Record {
		return record(t, put{kind: "MeshTimeout", mesh: "default", name: name, by: "alice", at: start.Add(d)})
	}
	old, kept, backdated := at(-time.Hour, "old"), at(time.Hour, "kept"), at(-time.Hour, "forged")
	revoked := func(more string) *trust.State {
		list := fmt.Sprintf("revoked:\n- {key: %s, since: %s%s}\n", id("alice"), start.Format(time.RFC3339), more)
		return accepted(t, enforcing(t), signed(t, document(2, trust.ModeEnforce, list), "a"))
	}
	s := revoked("")
	wantReason(t, "before since", s.Record(old), "")
	wantReason(t, "after since", s.Record(kept), "revoked")
	wantReason(t, "dated back, without keep", s.Record(backdated), "")
	s = revoked(fmt.Sprintf(", keep: [%s, %s]", trust.RecordID(old), trust.RecordID(kept)))
	wantReason(t, "in keep", s.Record(old), "")
	wantReason(t, "in keep, after since", s.Record(kept), "")
	wantReason(t, "dated back", s.Record(backdated), "revoked")
	s = revoked(", keep: []")
	wantReason(t, "an empty keep", s.Record(old), "revoked")
}

// TestRoleLost checks that a role that ends takes the records of its keys out of force.
func TestRoleLost(t *testing.T) {
	r := record(t, put{kind: "MeshAccessLog", mesh: "default", name: "log-1", by: "bob"})
	s := enforcing(t)
	wantReason(t, "before", s.Record(r), "")
	next := fmt.Sprintf("cluster: c\nversion: 2\nmode: enforce\nthreshold: 1\nroots: [{name: a, key: %s}]\n", public("a"))
	s = accepted(t, s, signed(t, next, "a"))
	wantReason(t, "after", s.Record(r), "grants no role")
}

// TestEnrollments checks who may enroll nodes, and what an enrollment allows.
func TestEnrollments(t *testing.T) {
	s := enforcing(t)
	e := &trust.Enrollment{Key: trust.ID(node("n2")), Name: "n2", Services: []string{"web*"}, Meshes: []string{"default"},
		Tags: map[string][]string{"version": {"v1", "v2"}}, Zone: "z", NotAfter: start.Add(time.Hour)}
	body, err := e.Encode()
	if err != nil {
		t.Fatal(err)
	}
	of := func(by string) *engine.Record {
		return record(t, put{kind: trust.KindEnrollment, name: id("n2"), body: string(body), by: by})
	}
	for by, want := range map[string]string{"a": "", "erin": "", "": "not signed", "bob": "may not enroll",
		"alice": "may not enroll", "n1": "may not enroll", "mallory": "may not enroll"} {
		wantReason(t, "signed by "+by, s.Record(of(by)), want)
	}
	wrong := record(t, put{kind: trust.KindEnrollment, name: id("n3"), body: string(body), by: "a"})
	wantReason(t, "another node", s.Record(wrong), "its record has the name")

	n2 := node("n2")
	wantReason(t, "not enrolled", s.Member(n2, "n2"), "has no enrollment")
	s = s.Enrolled([]*engine.Record{of("mallory")}, start)
	wantReason(t, "enrolled by a thief", s.Member(n2, "n2"), "has no enrollment")
	s = s.Enrolled([]*engine.Record{of("erin")}, start)
	wantReason(t, "enrolled", s.Member(n2, "n2"), "")
	wantReason(t, "another name", s.Member(n2, "n1"), "has the name n2")
	wantReason(t, "this node", s.Member(node("self"), "self"), "")
	wantReason(t, "data of an enrolled node", s.ExplainNode(n2, "n2"), "")
	wantReason(t, "data of another node", s.ExplainNode(node("n3"), "n3"), "has no enrollment")
	wantReason(t, "data of this node", s.ExplainNode(node("self"), "self"), "")
	if at := s.Expires(); !at.Equal(e.NotAfter) {
		t.Errorf("expires at %v", at)
	}
	got := s.Enrollment(n2)
	for _, c := range []struct {
		why  string
		want string
	}{
		{got.AllowsTags(map[string]string{"kuma.io/service": "web-1", "kuma.io/protocol": "http", "version": "v2"}), ""},
		{got.AllowsTags(map[string]string{"kuma.io/service": "db"}), "service db"},
		{got.AllowsTags(map[string]string{"kuma.io/service": "web", "version": "v3"}), "version: v3"},
		{got.AllowsTags(map[string]string{"kuma.io/service": "web", "team": "x"}), "team: x"},
		{got.AllowsTags(map[string]string{"kuma.io/service": "web", "kuma.io/zone": "y"}), "not y"},
		{got.AllowsMesh("other"), "mesh other"}, {got.AllowsMesh("default"), ""}, {got.AllowsZone("z"), ""},
		{got.AllowsAllServices(), "zone proxy"},
	} {
		wantReason(t, "tags", c.why, c.want)
	}
	other, err := (&trust.Enrollment{Key: trust.ID(node("n3")), Name: "n2", Services: []string{"*"}}).Encode()
	if err != nil {
		t.Fatal(err)
	}
	later := record(t, put{kind: trust.KindEnrollment, name: id("n3"), body: string(other), by: "a",
		at: start.Add(time.Minute)})
	for _, list := range [][]*engine.Record{{of("erin"), later}, {later, of("erin")}} {
		next := s.Enrolled(list, start)
		wantReason(t, "the name has another key", next.Member(n2, "n2"), "has no enrollment")
		wantReason(t, "the later key of the name", next.Member(node("n3"), "n2"), "")
	}
	s = s.Enrolled([]*engine.Record{of("erin")}, start.Add(2*time.Hour))
	wantReason(t, "expired", s.Member(n2, "n2"), "expired")
	if s.Enrollment(n2) != nil {
		t.Error("an expired enrollment is valid")
	}
}

// TestNames checks the names of keys in messages.
func TestNames(t *testing.T) {
	s := enforcing(t)
	for key, want := range map[string]string{id("a"): "root a", id("alice"): "alice", id("n1"): "node n1", id("x"): ""} {
		parsed, err := sign.ParseID(key)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.NameOf(parsed); got != want {
			t.Errorf("%s: %q, want %q", key, got, want)
		}
	}
}
