package effecttest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/answer/effect"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// protocols are those of the service or the inbound of a row.
var protocols = []string{"http", "http2", "grpc", "tcp", "kafka", "tls"}

// minRows is the required size of the table.
const minRows = 400

const golden = "testdata/rows.txt"

// TestTable compares, for each field on each protocol, the answer of an Examiner with the effect of
// removing the field from the document. The golden file lists the rows.
func TestTable(t *testing.T) {
	var rows []string
	for _, c := range readConfs(t) {
		for _, protocol := range protocols {
			rows = append(rows, c.rows(t, protocol)...)
		}
	}
	if len(rows) < minRows {
		t.Errorf("%d rows, want at least %d", len(rows), minRows)
	}
	got := strings.Join(rows, "\n") + "\n"
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("UPDATE_GOLDEN=1 updates %s:\n%s", golden, lineDiff(string(want), got))
	}
}

// lineDiff returns the lines that only one text has.
func lineDiff(want, got string) string {
	var b strings.Builder
	a, c := strings.Split(want, "\n"), strings.Split(got, "\n")
	for _, side := range []struct {
		mark     string
		of, than []string
	}{{"-", a, c}, {"+", c, a}} {
		for _, line := range side.of {
			if !slices.Contains(side.than, line) {
				b.WriteString(side.mark + line + "\n")
			}
		}
	}
	return b.String()
}

// conf is a conf of a kind in one of its lists.
type conf struct {
	kind, list string
	mtls       bool
	n          int    // position among the confs of the kind and list, from 1
	text       string // YAML
}

// readConfs reads testdata/confs.txt.
func readConfs(t *testing.T) []conf {
	t.Helper()
	text, err := os.ReadFile("testdata/confs.txt")
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	var out []conf
	for block := range strings.SplitSeq(string(text), "\n\n") {
		head, body, _ := strings.Cut(strings.TrimSpace(block), "\n")
		if head == "" || head[0] == '#' {
			continue
		}
		f := strings.Fields(head)
		count[f[0]+f[1]]++
		out = append(out, conf{f[0], f[1], slices.Contains(f, "mtls"), count[f[0]+f[1]], body})
	}
	return out
}

// document returns the policy with the conf.
func (c *conf) document() string {
	head := fmt.Sprintf("{type: %s, mesh: default, name: p, ", c.kind)
	const sidecars = "spec: {targetRef: {kind: Mesh, proxyTypes: [Sidecar]}, "
	item := func(target string) string {
		if strings.HasSuffix(c.kind, "Route") { // the fields are inline
			return "{targetRef: {kind: MeshService, name: backend}, " + strings.TrimPrefix(c.text, "{")
		}
		return "{" + target + "default: " + c.text + "}"
	}
	switch c.list {
	case "conf":
		if c.kind == "ProxyTemplate" {
			return head + `selectors: [{match: {kuma.io/service: "*"}}], conf: ` + c.text + "}"
		}
		return head + `sources: [{match: {kuma.io/service: "*"}}], destinations: [{match: {kuma.io/service: "*"}}], ` +
			"conf: " + c.text + "}"
	case "default":
		return head + "spec: {default: " + c.text + "}}"
	case "rules":
		return head + sidecars + "rules: [" + item("") + "]}}"
	case "from":
		return head + sidecars + "from: [" + item("targetRef: {kind: Mesh}, ") + "]}}"
	}
	return head + "spec: {" + c.list + ": [" + item("targetRef: {kind: Mesh}, ") + "]}}"
}

// resources returns a mesh in which web has one inbound and one outbound, both of a protocol.
func (c *conf) resources(protocol string) string {
	m := "{type: Mesh, name: default}"
	if c.mtls {
		m = "{type: Mesh, name: default, mtls: {enabledBackend: ca, backends: [{name: ca, type: builtin}]}}"
	}
	docs := []string{m, fmt.Sprintf("{type: Dataplane, mesh: default, name: web, networking: {address: 192.0.2.1, "+
		"inbound: [{port: 8080, servicePort: 8081, tags: {kuma.io/service: web, kuma.io/protocol: %s, "+
		"version: v1}}], "+
		"outbound: [{port: 10001, tags: {kuma.io/service: backend}}], "+
		"transparentProxying: {redirectPortInbound: 15006, redirectPortOutbound: 15001, "+
		"reachableServices: [backend]}}}", protocol)}
	for i, tags := range []string{"version: v1", "version: v2, kuma.io/zone: east"} {
		docs = append(docs, fmt.Sprintf("{type: Dataplane, mesh: default, name: backend-%d, "+
			"networking: {address: 192.0.2.%d, inbound: [{port: 8080, tags: {kuma.io/service: backend, "+
			"kuma.io/protocol: %s, %s}}]}}", i, i+2, protocol, tags))
	}
	return strings.Join(append(docs, c.document()), "\n---\n")
}

// rows returns the rows of the conf on one protocol.
func (c *conf) rows(t *testing.T, protocol string) []string {
	t.Helper()
	rs, faults := kinds.Registry().Decode("row.yaml", []byte(c.resources(protocol)))
	if len(faults) > 0 {
		t.Errorf("%s %s: %v\n%s", c.kind, c.list, faults, c.document())
		return nil
	}
	p := rs[len(rs)-1]
	others := rs[:len(rs)-1]
	m := meshOf(t, rs)
	full := configOf(t, m)
	x := effect.New(m, effect.Options{Trials: 1 << 20, Decode: kinds.Registry().DecodeOne})
	items := x.Fields(p, "web")
	id := fmt.Sprintf("%s %s %d %s", c.kind, c.list, c.n, protocol)
	if len(items) != 1 {
		t.Errorf("%s: %d items", id, len(items))
		return nil
	}
	changes := len(generate.Difference(configOf(t, meshOf(t, others)), full)) > 0
	if v := x.On(p, "web"); v.InForce() != changes {
		t.Errorf("%s: the policy is in force: %t, but leaving it out changes the config: %t", id, v.InForce(), changes)
	}
	var out []string
	item := items[0]
	for _, f := range fieldsOf(item) {
		path := strings.Split(item.Field, ".")
		without := removed(t, p, append(tokens(path), tokens(strings.Split(f.path, "."))...))
		set := others
		if without != nil {
			set = append(slices.Clone(others), without)
		}
		want := len(generate.Difference(configOf(t, meshOf(t, set)), full)) > 0
		if f.inForce() != want {
			t.Errorf("%s %s: effect %s, but removing it changes the config: %t", id, f.path, f.effect, want)
		}
		out = append(out, strings.TrimSpace(fmt.Sprintf("%s %s %s %s", id, f.path, f.effect, f.reason)))
	}
	return out
}

// field is a field of a conf with its effects at all places.
type field struct{ path, effect, reason string }

func (f *field) inForce() bool {
	return strings.Contains(f.effect, api.EffectAll) || strings.Contains(f.effect, api.EffectPart)
}

// fieldsOf returns the fields of an item, in document order, with their effects at its places.
func fieldsOf(item effect.Item) []field {
	var out []field
	at := map[string]int{}
	for _, p := range item.Places {
		for _, f := range p.Fields {
			i, ok := at[f.Path]
			if !ok {
				i = len(out)
				at[f.Path] = i
				out = append(out, field{path: f.Path})
			}
			o := &out[i]
			if !strings.Contains(o.effect, f.Effect) {
				o.effect = strings.TrimPrefix(o.effect+"+"+f.Effect, "+")
			}
			if f.Reason != "" && !strings.Contains(o.reason, f.Reason) {
				o.reason = strings.TrimPrefix(o.reason+"; "+f.Reason, "; ")
			}
		}
	}
	return out
}

// tokens splits path elements with an index: to[0] becomes to, 0.
func tokens(path []string) (out []string) {
	for _, p := range path {
		name, index, ok := strings.Cut(strings.TrimSuffix(p, "]"), "[")
		if out = append(out, strings.Trim(name, `"`)); ok {
			out = append(out, strings.Trim(index, `"`))
		}
	}
	return out
}

// removed returns the policy without the value at a path, or without the smallest part around it
// that the document does not need; nil if it needs the whole.
func removed(t *testing.T, p *resource.Resource, path []string) *resource.Resource {
	t.Helper()
	text, err := resource.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	for n := len(path); n > 0; n-- {
		var doc any
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		if err := d.Decode(&doc); err != nil {
			t.Fatal(err)
		}
		cut, err := json.Marshal(dropped(t, doc, path[:n]))
		if err != nil {
			t.Fatal(err)
		}
		if r, err := kinds.Registry().DecodeOne(cut); err == nil {
			return r
		}
	}
	return nil
}

// dropped removes the value at a path.
func dropped(t *testing.T, doc any, path []string) any {
	t.Helper()
	switch v := doc.(type) {
	case map[string]any:
		if _, ok := v[path[0]]; !ok {
			t.Fatalf("no %v in %v", path, slices.Sorted(maps.Keys(v)))
		}
		if len(path) == 1 {
			delete(v, path[0])
		} else {
			v[path[0]] = dropped(t, v[path[0]], path[1:])
		}
	case []any:
		if len(path) == 1 {
			return v[1:] // each list above a conf has one entry
		}
		v[0] = dropped(t, v[0], path[1:])
	}
	return doc
}

func meshOf(t *testing.T, rs []*resource.Resource) *generate.Mesh {
	t.Helper()
	m, err := generate.NewMesh(resource.NewSet(rs), "default", mesh.Options{}, kinds.Plugins(), policy.Options{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// configOf generates the config of web without any cache.
func configOf(t *testing.T, m *generate.Mesh) *generate.Proxy {
	t.Helper()
	p, err := generate.Generate(generate.Input{Mesh: m, Name: "web", Flavor: node.FlavorEnvoy}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
