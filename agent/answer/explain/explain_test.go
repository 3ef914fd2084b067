package explain_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/nearside-mesh/nearside/agent/answer/effect"
	"github.com/nearside-mesh/nearside/agent/answer/explain"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/test/kindtest"
)

// The kinds of these tests: Tune merges in every supported way, Lane has routes, Whole applies to
// the proxy, and Dead has no effect yet. OldTune and OldGate are legacy kinds; Tune replaces
// OldTune.
type (
	tuneConf struct {
		A     *int              `json:"a,omitempty"`
		B     string            `json:"b,omitempty"`
		Deep  *deepConf         `json:"deep,omitempty"`
		Last  []string          `json:"last,omitempty"`
		Joint []string          `json:"joint,omitempty" merge:"append"`
		Keyed []keyedConf       `json:"keyed,omitempty" merge:"key=Key"`
		Tags  map[string]string `json:"tags,omitempty"`
		Free  *resource.Raw     `json:"free,omitempty"`
	}
	deepConf struct {
		C *int `json:"c,omitempty"`
		D *int `json:"d,omitempty"`
	}
	keyedConf struct {
		Key string    `json:"key"`
		X   *int      `json:"x,omitempty"`
		Y   *int      `json:"y,omitempty"`
		In  *deepConf `json:"in,omitempty"`
	}
	laneConf struct {
		Rules []laneRule `json:"rules,omitempty" merge:"key=Matches"`
	}
	laneRule struct {
		Matches string `json:"matches"`
		To      string `json:"to,omitempty"`
	}
	oldConf struct {
		A *int `json:"a,omitempty"`
	}
)

func (*tuneConf) Validate(*resource.Validator) {}
func (*laneConf) Validate(*resource.Validator) {}
func (*oldConf) Validate(*resource.Validator)  {}

func (c *laneConf) RouteNames() []string {
	var out []string
	for _, r := range c.Rules {
		out = append(out, "hash-of-"+r.Matches)
	}
	return out
}

func plugins() []policy.Plugin {
	all := []string{"Mesh", "MeshSubset", "MeshService", "MeshServiceSubset", "Dataplane", "MeshHTTPRoute"}
	to := []string{"Mesh", "MeshService", "MeshMultiZoneService", "MeshHTTPRoute"}
	tune := func() resource.Conf { return &tuneConf{} }
	dead := resource.PolicyDescriptor("Dead", "deads", "", resource.PolicyShape{Top: all, To: to, NewConf: tune})
	dead.Inert = true
	return []policy.Plugin{
		{Kinds: []resource.Descriptor{resource.PolicyDescriptor("MeshHTTPRoute", "meshhttproutes", "", resource.PolicyShape{
			Top: all, To: to, Inline: true, NewConf: func() resource.Conf { return &laneConf{} }})}},
		{
			Kinds: []resource.Descriptor{resource.PolicyDescriptor("Tune", "tunes", "",
				resource.PolicyShape{Top: all, From: all, To: to, NewConf: tune})},
			Apply: apply,
			Legacy: []policy.LegacyKind{{
				Descriptor: resource.LegacyDescriptor("OldTune", "old-tunes", "",
					resource.LegacyShape{NewConf: func() resource.Conf { return &oldConf{} }}),
				ReplacedBy: []string{"Tune"},
			}, {
				Descriptor: resource.LegacyDescriptor("OldLane", "old-lanes", "",
					resource.LegacyShape{NewConf: func() resource.Conf { return &tuneConf{} }}),
				// A route supersedes the whole policy for its destination, a Dead supersedes field
				// a everywhere.
				SupersededBy: func(r *policy.Rules, s draft.Service, path string) *resource.Resource {
					if rule := r.Kind("MeshHTTPRoute").Outbound(s); rule != nil {
						return rule.Origins[len(rule.Origins)-1].Policy
					}
					if k := r.Kind("Dead"); k != nil && path == "a" {
						return k.Policies[0]
					}
					return nil
				},
			}},
		},
		{
			Kinds: []resource.Descriptor{resource.PolicyDescriptor("Whole", "wholes", "",
				resource.PolicyShape{Top: all, Default: true, NewConf: tune})},
			Apply: applyWhole,
			Legacy: []policy.LegacyKind{
				{Descriptor: resource.LegacyDescriptor("OldGate", "old-gates", "", resource.LegacyShape{}), Inbound: true},
				{Descriptor: resource.LegacyDescriptor("OldFault", "old-faults", "", resource.LegacyShape{}), Inbound: true,
					AllApply: true},
				{Descriptor: resource.LegacyDescriptor("OldLimit", "old-limits", "", resource.LegacyShape{}), Inbound: true,
					AllApply: true, OutboundToo: func(s *mesh.Service) bool { return s.External }},
				{Descriptor: resource.LegacyDescriptor("OldWhole", "old-wholes", "",
					resource.LegacyShape{Selectors: true, NewConf: func() resource.Conf { return &oldConf{} }})},
			},
		},
		{Kinds: []resource.Descriptor{dead}},
	}
}

func registry(t testing.TB) *resource.Registry {
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
	return reg
}

func decode(t testing.TB, docs string) *resource.Set {
	t.Helper()
	rs, faults := registry(t).Decode("", []byte(docs))
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	return resource.NewSet(rs)
}

// proxy returns the explanation of a dataplane of mesh default.
func proxy(t testing.TB, set *resource.Set, name string, warnings ...mesh.Warning) *explain.Proxy {
	t.Helper()
	m, err := generate.NewMesh(set, "default", mesh.Options{}, plugins(), policy.Options{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := explain.NewProxy(m.Policies, m.View.Dataplane(name), warnings)
	if err != nil {
		t.Fatal(err)
	}
	return p.WithEffects(effect.New(m, effect.Question(registry(t).DecodeOne)))
}

// TestExplanations explains the policies of the cases in testdata. The comment of a case has one
// question per line, "KIND/NAME DATAPLANE" or "all DATAPLANE"; the file answers has the expected
// text.
func TestExplanations(t *testing.T) {
	kindtest.Cases(t, "testdata/*.txtar", func(t *testing.T, file string, ar *txtar.Archive) {
		if len(ar.Files) != 2 || ar.Files[0].Name != "resources.yaml" || ar.Files[1].Name != "answers" {
			t.Fatal("a case has resources.yaml and answers")
		}
		set := decode(t, string(ar.Files[0].Data))
		var got strings.Builder
		for line := range strings.Lines(string(ar.Comment)) {
			what, name, ok := strings.Cut(strings.TrimSpace(line), " ")
			if !ok || strings.HasPrefix(what, "#") {
				continue
			}
			p := proxy(t, set, name)
			if what == "all" {
				for _, x := range p.Policies() {
					fmt.Fprintf(&got, "%s/%s on %s: %v, %s, in %v, out %v\n", x.Policy.Type, x.Policy.Name, name, x.Selected,
						x.Effect, x.Inbounds, x.Outbounds)
				}
				continue
			}
			kind, policyName, _ := strings.Cut(what, "/")
			r := set.Get(resource.Key{Kind: kind, Mesh: "default", Name: policyName})
			if r == nil {
				t.Fatalf("%s does not exist", what)
			}
			write(&got, p.Policy(r))
		}
		if os.Getenv("UPDATE_GOLDEN") != "" {
			ar.Files[1].Data = []byte(got.String())
			if err := os.WriteFile(file, txtar.Format(ar), 0o644); err != nil {
				t.Fatal(err)
			}
			return
		}
		if want := string(ar.Files[1].Data); got.String() != want {
			t.Errorf("got\n%s\nwant\n%s", got.String(), want)
		}
	})
}

// write formats an explanation for reading.
func write(b *strings.Builder, x explain.Policy) {
	fmt.Fprintf(b, "%s/%s on %s: selected %v, effect %s: %s\n", x.Policy.Type, x.Policy.Name, x.Dataplane.Name, x.Selected,
		x.Effect, x.Reason)
	if len(x.Inbounds) > 0 || x.Gateway || x.Route != nil {
		fmt.Fprintf(b, "  selects inbounds %v, gateway %v, route %v\n", x.Inbounds, x.Gateway, x.Route)
	}
	for _, it := range x.Items {
		fmt.Fprintf(b, "  %s (%s): %s", it.Field, it.About, it.Effect)
		if it.Reason != "" {
			b.WriteString(": " + it.Reason)
		}
		b.WriteString("\n")
		for _, pl := range it.Places {
			fmt.Fprintf(b, "    %s", pl.On)
			if pl.Inbound != nil {
				fmt.Fprintf(b, " %d", pl.Inbound.Port)
			}
			if pl.Route != "" {
				b.WriteString(" route " + pl.Route)
			}
			for _, d := range pl.Outbounds {
				b.WriteString(" " + d.String())
			}
			for _, m := range pl.Matchers {
				fmt.Fprintf(b, " %s=%s(not %v)", m.Key, m.Value, m.Not)
			}
			b.WriteString(":")
			for _, f := range pl.Fields {
				fmt.Fprintf(b, " %s=%s[%s]", f.Path, f.Value, f.Effect)
				for _, s := range f.By {
					fmt.Fprintf(b, "[%s/%s %s]", s.Type, s.Name, s.Field)
				}
			}
			b.WriteString("\n")
		}
	}
	for _, w := range x.Warnings {
		fmt.Fprintf(b, "  warning: %s\n", w)
	}
}

const web = `
{type: Mesh, name: default}
---
{type: Dataplane, name: web, networking: {address: 192.0.2.1,
  inbound: [{port: 8080, tags: {kuma.io/service: web, version: v1}}],
  outbound: [{port: 10001, tags: {kuma.io/service: backend}}, {port: 10002, tags: {kuma.io/service: redis}}]}}
`

// TestDocument checks the JSON form.
func TestDocument(t *testing.T) {
	set := decode(t, web+`
---
{type: Tune, name: wide, spec: {to: [{targetRef: {kind: Mesh}, default: {a: 1, b: x}}]}}
---
{type: Tune, name: narrow, spec: {targetRef: {kind: MeshService, name: web}, to: [{targetRef: {kind: MeshService, name: backend}, default: {b: "y<z"}}]}}
`)
	x := proxy(t, set, "web").Policy(set.Get(resource.Key{Kind: "Tune", Mesh: "default", Name: "wide"}))
	got, err := json.MarshalIndent(x, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	const file = "testdata/document.json"
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(file, append(got, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(got)+"\n" != string(want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestWarnings checks that warnings of other packages about a policy are included without
// duplicates.
func TestWarnings(t *testing.T) {
	set := decode(t, web+`
---
{type: Tune, name: t, spec: {to: [{targetRef: {kind: Mesh}, default: {a: 1}}]}}
`)
	key := resource.Key{Kind: "Tune", Mesh: "default", Name: "t"}
	w := mesh.Warning{Resource: key, Reason: "the patch does not fit"}
	p := proxy(t, set, "web", w, w,
		mesh.Warning{Resource: resource.Key{Kind: "Dataplane", Mesh: "default", Name: "web"}, Reason: "other"})
	want := []string{"the patch does not fit"}
	if x := p.Policy(set.Get(key)); fmt.Sprint(x.Warnings) != fmt.Sprint(want) {
		t.Errorf("warnings %q", x.Warnings)
	}
	want = []string{"Tune/default/t: the patch does not fit"}
	if got := p.Warnings("Tune", ""); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("warnings of the kind %q", got)
	}
}

// TestChangedPolicy explains a policy that has changed since the configs were computed.
func TestChangedPolicy(t *testing.T) {
	doc := func(a int) string {
		return web +
			fmt.Sprintf("\n---\n{type: Tune, name: t, spec: {to: [{targetRef: {kind: Mesh}, default: {a: %d}}]}}\n", a)
	}
	before, after := decode(t, doc(1)), decode(t, doc(2))
	x := proxy(t, before, "web").Policy(after.Get(resource.Key{Kind: "Tune", Mesh: "default", Name: "t"}))
	if x.Selected || x.Effect != explain.EffectNone || !strings.Contains(x.Reason, "the policy changed after") ||
		len(x.Items) > 0 {
		t.Errorf("%+v", x)
	}
	if x := proxy(t, before, "web").
		Policy(before.Get(resource.Key{Kind: "Dataplane", Mesh: "default", Name: "web"})); x.Selected || x.Reason == "" {
		t.Errorf("a dataplane is explained as a policy: %+v", x)
	}
}
