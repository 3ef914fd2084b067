package resource_test

import (
	"strings"
	"testing"
)

// TestDeclarations checks that a Mesh without settings gives way to a later document of the same
// stream, in both formats and in large streams, and nothing else does.
func TestDeclarations(t *testing.T) {
	const (
		bare = "---\ncreationTime: \"0001-01-01T00:00:00Z\"\nname: a\ntype: Mesh\n"
		star = "---\nname: a\ntype: Mesh\nskipCreatingInitialPolicies: ['*']\n"
		k8s  = "---\napiVersion: kuma.io/v1alpha1\nkind: Mesh\nmetadata: {name: a, creationTimestamp: null}\n"
		full = "---\nname: a\ntype: Mesh\nrouting: {zoneEgress: true}\n"
		dp   = "---\nname: d\nmesh: a\ntype: Dataplane\n" +
			"networking: {address: 10.0.0.1, gateway: {tags: {kuma.io/service: g}}}\n"
	)
	for name, c := range map[string]struct {
		in    string
		want  string // keys
		first string // in the first Mesh
	}{
		"alone":              {bare + dp, "Mesh/a Dataplane/a/d", `{"type":"Mesh","name":"a"}`},
		"completed":          {bare + dp + full, "Dataplane/a/d Mesh/a", "zoneEgress"},
		"completed in a row": {star + k8s + full, "Mesh/a", "zoneEgress"},
		"by a declaration":   {bare + star, "Mesh/a", "skipCreating"},
		"after the document": {full + bare, "Mesh/a Mesh/a", "zoneEgress"},
		"of another mesh": {bare + strings.Replace(full, "name: a", "name: b", 1),
			"Mesh/a Mesh/b", `{"type":"Mesh","name":"a"}`},
		"with settings": {full + full, "Mesh/a Mesh/a", "zoneEgress"},
		"in a large stream": {bare + strings.Repeat("---\nname: b\ntype: Mesh\nrouting: {zoneEgress: true}\n", 200) +
			full, "Mesh/a", ""},
		"twice without setting": {bare + bare, "Mesh/a", ""},
	} {
		list, faults := registry(t).Decode("", []byte(c.in))
		if len(faults) > 0 {
			t.Errorf("%s: %v", name, faults)
		}
		var keys []string
		text := ""
		for _, res := range list {
			if res.Name != "b" || len(list) < 100 {
				keys = append(keys, res.Key.String())
			}
			if res.Kind == "Mesh" && text == "" {
				text = canonical(t, res)
			}
		}
		if got := strings.Join(keys, " "); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		if !strings.Contains(text, c.first) {
			t.Errorf("%s: %s, want %s", name, text, c.first)
		}
	}
}
