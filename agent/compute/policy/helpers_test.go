package policy_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// conf is the conf of the test kinds.
type conf struct {
	A    string            `json:"a,omitempty"`
	B    string            `json:"b,omitempty"`
	List []string          `json:"list,omitempty"`
	Add  []string          `json:"add,omitempty" merge:"append"`
	Sub  *sub              `json:"sub,omitempty"`
	Map  map[string]string `json:"map,omitempty"`
}

type sub struct {
	X *uint32 `json:"x,omitempty"`
	Y *uint32 `json:"y,omitempty"`
}

func (*conf) Validate(*resource.Validator) {}

// routes is the conf of the test route kind. The names of its routes are in Names.
type routes struct {
	Names []string `json:"names,omitempty"`
}

func (*routes) Validate(*resource.Validator) {}
func (r *routes) RouteNames() []string       { return r.Names }

var (
	tops = []string{"Mesh", "MeshSubset", "MeshService", "MeshServiceSubset", "MeshMultiZoneService", "MeshGateway",
		"Dataplane", "MeshHTTPRoute"}
	tos = []string{"Mesh", "MeshService", "MeshExternalService", "MeshMultiZoneService", "MeshHTTPRoute"}
)

func plugins() []policy.Plugin {
	newConf := func() resource.Conf { return new(conf) }
	return []policy.Plugin{
		{Kinds: []resource.Descriptor{resource.PolicyDescriptor("MeshHTTPRoute", "meshhttproutes", "", resource.PolicyShape{
			Top: tops, To: tos, Inline: true, NewConf: func() resource.Conf { return new(routes) }})}},
		{
			Admits: func(c resource.Conf) bool { return c.(*conf).A == "allow" },
			Kinds: []resource.Descriptor{resource.PolicyDescriptor("MeshT", "mesht", "", resource.PolicyShape{
				Top: tops, From: tops, To: tos, MeshName: true, NewConf: newConf})},
			Legacy: []policy.LegacyKind{{
				Descriptor: resource.LegacyDescriptor("Old", "olds", "", resource.LegacyShape{NewConf: newConf}),
				ReplacedBy: []string{"MeshT"}}},
		},
		{
			Kinds: []resource.Descriptor{resource.PolicyDescriptor("MeshP", "meshp", "", resource.PolicyShape{
				Top: tops, Default: true, NewConf: newConf})},
			Legacy: []policy.LegacyKind{{Descriptor: resource.LegacyDescriptor("OldP", "oldps", "",
				resource.LegacyShape{Selectors: true, NewConf: newConf})}},
		},
	}
}

// dataplanes are the proxies of the tests: web has two inbounds, backend has two versions, gw is a
// gateway, and bare has no inbound.
const dataplanes = `
type: Mesh
name: default
---
{type: Dataplane, name: web, labels: {team: front}, networking: {address: 10.0.0.1, inbound: [
  {port: 80, name: main, tags: {kuma.io/service: web, kuma.io/protocol: http, version: v1}},
  {port: 81, tags: {kuma.io/service: web-admin, kuma.io/protocol: http}}]}}
---
{type: Dataplane, name: backend-1, networking: {address: 10.0.0.2, inbound: [{port: 80, tags: {kuma.io/service: backend, version: v1}}]}}
---
{type: Dataplane, name: backend-2, networking: {address: 10.0.0.3, inbound: [{port: 80, tags: {kuma.io/service: backend, version: v2}}]}}
---
{type: Dataplane, name: gw, networking: {address: 10.0.0.4, gateway: {type: DELEGATED, tags: {kuma.io/service: gw, version: v1}}}}
---
{type: Dataplane, name: bare, networking: {address: 10.0.0.5, inbound: [{port: 80, state: Ignored, tags: {kuma.io/service: bare}}]}}
---
`

func decode(t testing.TB, doc string) []*resource.Resource {
	t.Helper()
	ds := resource.Core()
	for _, r := range plugins() {
		ds = append(ds, r.Kinds...)
		for _, l := range r.Legacy {
			ds = append(ds, l.Descriptor)
		}
	}
	reg, err := resource.NewRegistry(ds...)
	if err != nil {
		t.Fatal(err)
	}
	rs, faults := reg.Decode("test", []byte(doc))
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	return rs
}

func indexOf(t testing.TB, rs []*resource.Resource, o policy.Options) *policy.Index {
	t.Helper()
	set := resource.NewSet(rs)
	v, err := mesh.Build(set, "default", mesh.Options{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return policy.NewIndex(plugins(), set, v, o)
}

func index(t testing.TB, doc string) *policy.Index {
	t.Helper()
	return indexOf(t, decode(t, dataplanes+doc), policy.Options{})
}

// mesht returns a policy of kind MeshT; rest is the spec after targetRef.
func mesht(name, target, rest string) string {
	return fmt.Sprintf("{type: MeshT, name: %s, spec: {targetRef: %s, %s}}\n---\n", name, target, rest)
}

// show formats rules for comparison: subset, conf, and origins.
func show(rs []*policy.Rule) string {
	var lines []string
	for _, r := range rs {
		lines = append(lines, showRule(r))
	}
	return strings.Join(lines, "\n")
}

func showRule(r *policy.Rule) string {
	if r == nil {
		return "none"
	}
	var tags []string
	for _, t := range r.Subset {
		op := "="
		if t.Not {
			op = "!="
		}
		tags = append(tags, strings.TrimPrefix(t.Key, "kuma.io/")+op+t.Value)
	}
	b, err := json.Marshal(r.Conf)
	if err != nil {
		return err.Error()
	}
	var from []string
	for _, o := range r.Origins {
		from = append(from, fmt.Sprintf("%s[%d]", o.Policy.Name, o.Item))
	}
	return fmt.Sprintf("{%s} %s %s", strings.Join(tags, ","), b, strings.Join(from, " "))
}

func rulesOf(t testing.TB, x *policy.Index, dataplane, kind string) *policy.KindRules {
	t.Helper()
	r := x.View.Dataplane(dataplane)
	if r == nil {
		t.Fatalf("no dataplane %s", dataplane)
	}
	return x.Rules(r).Kind(kind)
}

func warned(x []mesh.Warning, words ...string) bool {
	return slices.ContainsFunc(x, func(w mesh.Warning) bool {
		for _, word := range words {
			if !strings.Contains(w.Reason, word) {
				return false
			}
		}
		return true
	})
}
