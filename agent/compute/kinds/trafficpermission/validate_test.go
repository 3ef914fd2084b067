package trafficpermission_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

func document(top, from string) []byte {
	return []byte(`{"type":"MeshTrafficPermission","mesh":"default","name":"p","spec":{"targetRef":` + top + `,"from":` +
		from + `}}`)
}

func TestValid(t *testing.T) {
	r := kinds.Registry()
	for _, action := range []string{
		"Allow", "ALLOW", "allow", "Deny", "DENY", "deny", "AllowWithShadowDeny", "ALLOW_WITH_SHADOW_DENY",
		"allow_with_shadow_deny",
	} {
		doc := document(`{"kind":"Mesh"}`, `[{"targetRef":{"kind":"Mesh"},"default":{"action":"`+action+`"}}]`)
		res, faults := r.Decode("", doc)
		if len(faults) > 0 {
			t.Errorf("%s: %v", action, faults)
			continue
		}
		if out, err := resource.Marshal(res[0]); err != nil || string(out) != string(doc) {
			t.Errorf("%s is encoded as %s (%v)", doc, out, err)
		}
	}
	for _, top := range []string{
		`{"kind":"MeshSubset","tags":{"a":"b"}}`, `{"kind":"MeshService","name":"s"}`,
		`{"kind":"MeshServiceSubset","name":"s","tags":{"a":"b"}}`,
		`{"kind":"Dataplane","labels":{"a":"b"},"sectionName":"http"}`,
	} {
		if _, faults := r.Decode("", document(top,
			`[{"targetRef":{"kind":"MeshServiceSubset","name":"s"},"default":{"action":"Allow"}}]`)); len(faults) > 0 {
			t.Errorf("%s: %v", top, faults)
		}
	}
}

func TestInvalid(t *testing.T) {
	r := kinds.Registry()
	item := func(ref, conf string) string { return `[{"targetRef":` + ref + `,"default":` + conf + `}]` }
	for _, c := range []struct{ top, from, field, reason string }{
		{`{"kind":"Mesh"}`, `[]`, "spec.from", "at least one item"},
		{`{"kind":"Mesh"}`, `[{"targetRef":{"kind":"Mesh"}}]`, "spec.from[0].default.action", "missing"},
		{`{"kind":"Mesh"}`, item(`{"kind":"Mesh"}`, `{}`), "spec.from[0].default.action", "Allow, Deny, AllowWithShadowDeny"},
		{`{"kind":"Mesh"}`, item(`{"kind":"Mesh"}`, `{"action":"Permit"}`), "spec.from[0].default.action",
			"Allow, Deny, AllowWithShadowDeny"},
		{`{"kind":"Mesh"}`, item(`{"kind":"Mesh"}`, `{"action":"DENY_WITH_SHADOW_ALLOW"}`), "spec.from[0].default.action",
			"not allowed"},
		{`{"kind":"Mesh"}`, item(`{"kind":"Mesh"}`, `{"action":true}`), "spec.from[0].default.action", "a string is expected"},
		{`{"kind":"Mesh"}`, item(`{"kind":"Mesh"}`, `{"acton":"Deny"}`), "spec.from[0].default.acton",
			`did you mean "action"`},
		{`{"kind":"Mesh"}`, item(`{"kind":"Dataplane"}`, `{"action":"Deny"}`), "spec.from[0].targetRef.kind",
			"MeshServiceSubset"},
		{`{"kind":"MeshGateway","name":"g"}`, item(`{"kind":"Mesh"}`, `{"action":"Deny"}`),
			"spec.targetRef.kind", "MeshServiceSubset"},
	} {
		doc := document(c.top, c.from)
		if !json.Valid(doc) {
			t.Fatalf("not JSON: %s", doc)
		}
		_, faults := r.Decode("", doc)
		found := false
		for _, f := range faults {
			found = found || f.Field == c.field && strings.Contains(f.Reason, c.reason)
		}
		if !found {
			t.Errorf("%s\nwant a fault at %s with %q, got %v", doc, c.field, c.reason, faults)
		}
	}
	if _, faults := r.Decode("", []byte(`{"type":"TrafficPermission","mesh":"default","name":"p","sources":[{"match":{"kuma.io/service":"*"}}],"destinations":[],"conf":{}}`)); len(faults) != 2 {
		t.Errorf("a valid TrafficPermission is rejected: %v", faults)
	}
}
