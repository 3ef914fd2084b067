package remedytest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/answer/effect"
	"github.com/nearside-mesh/nearside/agent/answer/explain"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// world has two clients of one server, and mTLS. Only web has the tag team: a.
const world = `
{type: Mesh, name: default, mtls: {enabledBackend: ca, backends: [{name: ca, type: builtin}]}}
---
{type: Dataplane, mesh: default, name: backend, labels: {app: backend}, networking: {address: 10.0.0.1, inbound: [
  {port: 80, servicePort: 81, tags: {kuma.io/service: backend, kuma.io/protocol: tcp}}]}}
---
{type: Dataplane, mesh: default, name: web, labels: {app: web}, networking: {address: 10.0.0.2,
  transparentProxying: {redirectPortInbound: 15006, redirectPortOutbound: 15001},
  inbound: [{port: 80, tags: {kuma.io/service: web, team: a}}]}}
---
{type: Dataplane, mesh: default, name: job, labels: {app: job}, networking: {address: 10.0.0.3,
  transparentProxying: {redirectPortInbound: 15006, redirectPortOutbound: 15001},
  inbound: [{port: 80, tags: {kuma.io/service: job}}]}}
`

// outside is a destination outside the mesh.
const outside = "203.0.113.7:443"

// permission returns a permission for the clients of an item in from.
func permission(top, client, action string) string {
	return fmt.Sprintf("{type: MeshTrafficPermission, mesh: default, name: p, spec: {targetRef: %s, "+
		"from: [{targetRef: %s, default: {action: %s}}]}}", top, client, action)
}

const (
	backend = "{kind: MeshService, name: backend}"
	onlyWeb = "{kind: MeshService, name: web}"
	noLeave = "{type: MeshPassthrough, mesh: default, name: p, spec: {targetRef: {kind: Mesh}, default: {%s}}}"
	rules   = "{type: MeshTrafficPermission, mesh: default, name: p, %sspec: {rules: [{%sdefault: {allow: [%s]}}]}}"
	spiffe  = "{spiffeID: {type: Exact, value: 'spiffe://default/web'}}"
)

// remedies are documents with a fault or a warning, and the document that follows its remedy. may
// has everything that the author of the document can have meant to allow.
var remedies = []struct {
	name, wrong, says, right string
	may                      string
}{
	{"labels of a subset", permission(backend, "{kind: MeshSubset, labels: {kuma.io/service: web}}", "Allow"),
		"labels does not go with kind MeshSubset, which selects by tags: move the values into tags",
		permission(backend, "{kind: MeshSubset, tags: {kuma.io/service: web}}", "Allow"), "web"},
	{"a name of a mesh", permission(backend, "{kind: Mesh, name: web}", "Allow"),
		"name does not go with kind Mesh: to select fewer, give kind MeshService",
		permission(backend, onlyWeb, "Allow"), "web"},
	{"tags of a mesh", permission(backend, "{kind: Mesh, tags: {team: a}}", "Allow"),
		"tags does not go with kind Mesh: to select fewer, give kind MeshSubset",
		permission(backend, "{kind: MeshSubset, tags: {team: a}}", "Allow"), "web"},
	{"tags of a service", permission(backend, "{kind: MeshService, name: web, tags: {team: a}}", "Allow"),
		"tags does not go with kind MeshService: to select fewer, give kind MeshSubset or MeshServiceSubset",
		permission(backend, "{kind: MeshServiceSubset, name: web, tags: {team: a}}", "Allow"), "web"},
	{"a name of a subset", permission(backend, "{kind: MeshSubset, name: web, tags: {team: a}}", "Allow"),
		"name does not go with kind MeshSubset: to select fewer, give kind MeshService or MeshServiceSubset",
		permission(backend, "{kind: MeshServiceSubset, name: web, tags: {team: a}}", "Allow"), "web"},
	{"labels of the target", permission("{kind: MeshSubset, labels: {kuma.io/service: job}}", "{kind: Mesh}", "Allow"),
		"labels does not go with kind MeshSubset, which selects by tags: move the values into tags",
		permission("{kind: MeshSubset, tags: {kuma.io/service: job}}", "{kind: Mesh}", "Allow"), ""},
	{"a name of the target", permission("{kind: Mesh, name: job}", "{kind: Mesh}", "Allow"),
		"name does not go with kind Mesh: to select fewer, give kind Dataplane or MeshService",
		permission("{kind: Dataplane, name: job}", "{kind: Mesh}", "Allow"), ""},
	{"a section of the target", permission("{kind: Mesh, sectionName: other}", "{kind: Mesh}", "Allow"),
		"sectionName does not go with kind Mesh: to select fewer, give kind Dataplane",
		permission("{kind: Dataplane, name: backend, sectionName: other}", "{kind: Mesh}", "Allow"), ""},
	{"a name and labels", permission("{kind: Dataplane, name: job, labels: {app: backend}}", "{kind: Mesh}", "Allow"),
		"labels exclude a name: keep the name to select only \"job\"",
		permission("{kind: Dataplane, name: job}", "{kind: Mesh}", "Allow"), ""},
	{"proxy types of a service",
		permission("{kind: MeshService, name: backend, proxyTypes: [Gateway]}", "{kind: Mesh}", "Allow"),
		"proxyTypes does not go with kind MeshService: to select fewer, give kind Mesh or MeshSubset",
		permission("{kind: Mesh, proxyTypes: [Gateway]}", "{kind: Mesh}", "Allow"), ""},
	{"a list that the kind does not have", strings.Replace(permission(backend, "{kind: Mesh}", "Deny"), "from:", "to:", 1),
		"spec.to: this kind has no to; it has targetRef, from", permission(backend, "{kind: Mesh}", "Deny"), ""},
	{"a default that the kind does not have", "{type: MeshTrafficPermission, mesh: default, name: p, spec: {targetRef: " +
		backend + ", default: {action: Deny}, from: [{targetRef: {kind: Mesh}, default: {action: Allow}}]}}",
		"spec.default: this kind has no default; it has targetRef, from",
		permission(backend, "{kind: Mesh}", "Deny"), ""},
	{"an empty tag", "{type: TrafficPermission, mesh: default, name: p, sources: [{match: {kuma.io/service: '*', " +
		"team: ''}}], destinations: [{match: {kuma.io/service: '*'}}]}", "the value of the tag is empty: give one",
		"{type: TrafficPermission, mesh: default, name: p, sources: [{match: {kuma.io/service: '*', team: a}}], " +
			"destinations: [{match: {kuma.io/service: '*'}}]}", "web"},
	{"a misspelled effect", strings.Replace(permission(backend, "{kind: Mesh}", "Allow"), "spec:",
		"labels: {kuma.io/effect: shadwo}, spec:", 1), "write shadow",
		strings.Replace(permission(backend, "{kind: Mesh}", "Allow"), "spec:", "labels: {kuma.io/effect: shadow}, spec:", 1),
		""},
	{"a misplaced match",
		fmt.Sprintf(rules, "", "matches: ["+spiffe+"], ", "{spiffeID: {type: Prefix, value: 'spiffe://'}}"),
		"the clients are selected in default, by the matches of allow", fmt.Sprintf(rules, "", "", spiffe), "web"},
	{"a role without a namespace", fmt.Sprintf(rules, "labels: {kuma.io/policy-role: workload-owner}, ", "", spiffe),
		"", fmt.Sprintf(rules, "labels: {kuma.io/policy-role: workload-owner, k8s.kuma.io/namespace: other}, ", "", spiffe),
		""},
	{"contradicting modes", fmt.Sprintf(noLeave, "enabled: false, passthroughMode: All"),
		"write passthroughMode None, which lets less out", fmt.Sprintf(noLeave, "passthroughMode: None"), ""},
	{"contradicting modes, mirrored", fmt.Sprintf(noLeave, "enabled: true, passthroughMode: None"),
		"write passthroughMode None, which lets less out", fmt.Sprintf(noLeave, "passthroughMode: None"), ""},
}

// TestRemedies applies each remedy about access and checks what the result allows.
func TestRemedies(t *testing.T) {
	for _, r := range remedies {
		t.Run(strings.ReplaceAll(r.name, " ", "_"), func(t *testing.T) {
			if _, said := build(t, r.wrong); !strings.Contains(said, r.says) {
				t.Errorf("the document has\n%s\nwant %q", said, r.says)
			}
			m, said := build(t, r.right)
			if m == nil {
				t.Fatalf("the document after the remedy has faults:\n%s", said)
			}
			for _, who := range []string{"web", "job"} {
				got := allowed(t, m, who, "backend.mesh:80")
				if strings.HasPrefix(r.right, "{type: MeshPassthrough") {
					got = allowed(t, m, who, outside)
				}
				if want := strings.Contains(r.may, who); got && !want {
					t.Errorf("%s is allowed", who)
				} else if want && !got {
					t.Errorf("%s is not allowed: the remedy does not do what the document says", who)
				}
			}
		})
	}
}

// TestMisplacedFields checks for all kinds of policies, positions, and kinds of references that no
// error about a field that a reference must not have suggests to omit it: the reference would then
// select more.
func TestMisplacedFields(t *testing.T) {
	fields := map[string]string{"name": "x", "namespace": "x", "labels": "{a: b}", "tags": "{a: b}", "sectionName": "x",
		"mesh": "x", "proxyTypes": "[Sidecar]"}
	seen := 0
	for _, d := range kinds.Policies() {
		if d.Legacy {
			continue
		}
		shape := d.New().(*resource.Policy).Shape
		for _, at := range []struct {
			format string
			kinds  []string
		}{
			{"{type: %s, mesh: default, name: p, spec: {targetRef: %s}}",
				slices.Concat(shape.Top, shape.TopFromOnly, shape.TopToOnly)},
			{"{type: %s, mesh: default, name: p, spec: {from: [{targetRef: %s}]}}", shape.From},
			{"{type: %s, mesh: default, name: p, spec: {to: [{targetRef: %s}]}}", shape.To},
		} {
			for _, kind := range at.kinds {
				for _, field := range slices.Sorted(maps.Keys(fields)) {
					doc := fmt.Sprintf(at.format, d.Kind, fmt.Sprintf("{kind: %s, %s: %s}", kind, field, fields[field]))
					_, faults := kinds.Registry().Decode("", []byte(doc))
					for _, f := range faults {
						text := f.String()
						if !strings.Contains(text, "does not go with kind") {
							continue
						}
						seen++
						for _, word := range []string{"remove", "omit", "delete", "drop"} {
							if strings.Contains(text, word) {
								t.Errorf("%s\n%s", doc, text)
							}
						}
					}
				}
			}
		}
	}
	if seen < 100 {
		t.Errorf("%d faults, want at least 100", seen)
	}
}

// build derives the mesh of the world with a document. It returns nil if the document has faults,
// and the faults or the warnings as text.
func build(t *testing.T, doc string) (*generate.Mesh, string) {
	t.Helper()
	rs, faults := kinds.Registry().Decode("", []byte(world+"---\n"+doc))
	if err := faults.Err(); err != nil {
		var all []string
		for _, f := range faults {
			all = append(all, f.String())
		}
		return nil, strings.Join(all, "\n")
	}
	m, err := generate.NewMesh(resource.NewSet(rs), "default", mesh.Options{}, kinds.Plugins(), policy.Options{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, w := range effect.Targets(m, rs[len(rs)-1]) {
		all = append(all, w.Reason)
	}
	return m, strings.Join(all, "\n")
}

// allowed reports whether a connection of a dataplane is allowed. If several servers decide, all of
// them must allow it.
func allowed(t *testing.T, m *generate.Mesh, from, to string) bool {
	t.Helper()
	flow, err := explain.NewTraffic(m).Connection(&explain.ConnectionQuestion{Target: explain.Target{From: from, To: to},
		TLS: to == outside})
	if err != nil {
		t.Fatal(err)
	}
	return flow.Verdict == explain.VerdictAllowed
}
