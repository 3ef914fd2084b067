package httpapi_test

import (
	"cmp"
	"context"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/serve/httpapi"
	"github.com/prometheus/client_golang/prometheus"
)

// Documents without a separate type in the package.
type (
	resourceDoc struct { // a resource in its universal form
		Type             string            `json:"type"`
		Mesh             string            `json:"mesh,omitempty"`
		Name             string            `json:"name"`
		Labels           map[string]string `json:"labels,omitempty"`
		CreationTime     string            `json:"creationTime,omitempty"`
		ModificationTime string            `json:"modificationTime,omitempty"`
		Spec             json.RawMessage   `json:"spec,omitempty"`
	}
	page[T any] struct {
		Total int     `json:"total"`
		Items []T     `json:"items"`
		Next  *string `json:"next"`
	}
	attachmentList struct {
		Kind  string           `json:"kind"`
		Total int              `json:"total"`
		Items []api.Attachment `json:"items"`
	}
	resourceTypes struct {
		Resources []api.ResourceType `json:"resources"`
	}
	explanation struct{} // one of the answers to POST /v1/explain
	anything    struct{} // an object with fields that depend on the kind
	nothing     struct{} // an empty object
)

const (
	documents = "application/yaml"
	metrics   = "text/plain"
	binary    = "application/octet-stream"
	jsonLines = "application/x-ndjson"

	eventStream = "text/event-stream"
	paging      = "size offset"
)

// talkative is an Envoy that answers.
type talkative struct{}

func (talkative) ConfigDump(context.Context, bool) ([]byte, error) {
	return []byte(`{"configs": []}`), nil
}
func (talkative) Stats(context.Context) ([]byte, error)    { return []byte("a: 1\n"), nil }
func (talkative) Clusters(context.Context) ([]byte, error) { return []byte("a::b\n"), nil }
func (talkative) Levels(_ context.Context, set map[string]string) (map[string]string, error) {
	return map[string]string{"admin": "info", "upstream": cmp.Or(set["upstream"], "info")}, nil
}

// checkQuery checks that a route refuses unknown query parameters and knows the documented ones.
func (a *testAPI) checkQuery(method, path, documented string) {
	a.t.Helper()
	const unknown = "unknown query parameter "
	path, _, _ = strings.Cut(path, "?")
	got := a.do(method, path+"?foo=bar", "")
	if got.status != 400 || !strings.Contains(got.body, unknown+"foo; this path has ") {
		a.t.Errorf("%s is answered with %d: %s", got.request, got.status, got.body)
	}
	refused := ""
	if path == "/v1/events" {
		refused = "&types=x" // a stream has no end
	}
	for _, p := range strings.Fields(documented) {
		if got := a.do(method, path+"?"+p+"="+refused, ""); strings.Contains(got.body, unknown) {
			a.t.Errorf("%s is answered with %d: %s", got.request, got.status, got.body)
		}
	}
}

// TestOpenAPI compares docs/openapi.yaml with the routes of the server, the types and comments of
// its documents, and its responses. UPDATE_GOLDEN=1 rewrites the file.
func TestOpenAPI(t *testing.T) {
	a := start(t, func(o *httpapi.Options) {
		counted := prometheus.NewCounter(prometheus.CounterOpts{Name: "nearside_one_total", Help: "One."})
		reg := prometheus.NewRegistry()
		reg.MustRegister(counted)
		o.Metrics = reg
		o.Debug = func(item string) ([]byte, *api.Error) { return []byte(item), nil }
		o.ProxiesOf = func(ref node.Ref) []api.ProxyStatus {
			return []api.ProxyStatus{{Type: ref.Type, Mesh: ref.Mesh, Name: ref.Name, Flavor: node.FlavorEnvoy, Streams: 1,
				State: api.StateUnknown, Types: []api.TypeStatus{}, Events: []api.Event{}}}
		}
		o.Envoy = func(*api.ProxyStatus) httpapi.Envoy { return talkative{} }
		o.Drain = func(_ context.Context, k resource.Key, _ *api.DrainRequest, _ string) (*api.Drain, *api.Error) {
			return &api.Drain{Mesh: k.Mesh, Name: k.Name, State: api.DrainUndone}, nil
		}
	})
	a.put(store.Source{Kind: store.SourceAPI}, "{type: Mesh, name: default}\n---\n"+web+`
---
{type: MeshTimeout, mesh: default, name: t, spec: {to: [{targetRef: {kind: Mesh}, default: {connectionTimeout: 2s}}]}}
---
{type: MeshService, mesh: default, name: web, spec: {selector: {dataplaneTags: {kuma.io/service: web}}, ports: [{port: 80, targetPort: 8080}]}}
---
{type: ZoneEgress, name: out, networking: {address: 192.0.2.9, port: 10002}}
---
{type: ZoneIngress, name: in, networking: {address: 192.0.2.8, port: 10001}}
`)
	a.reconcile(api.Problem{Resource: "MeshTimeout/default/t", Severity: api.SeverityWarning, Reason: "r"})

	have := map[string]bool{}
	for _, x := range a.srv.Routes() {
		key := x.Method + " " + x.Pattern
		have[key] = true
		if _, ok := operations[key]; !ok {
			t.Errorf("%s: the table of operations has no row for this route", key)
		}
	}
	ids := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(operations)) {
		op := operations[key]
		if !have[key] {
			t.Errorf("%s: the server has no such route", key)
		}
		if other := ids[op.id]; other != "" {
			t.Errorf("%s and %s have one id", key, other)
		}
		ids[op.id] = key
	}

	b := newSpecification(t)
	b.describe()
	for key, op := range operations {
		for _, doc := range []any{op.body, op.answer} {
			// Fill every field, including those that the test's agent leaves empty.
			if s := b.of(doc); s != nil && s.ref != "" {
				body, err := json.Marshal(full(reflect.TypeOf(doc), nil).Interface())
				if err != nil {
					t.Fatal(err)
				}
				b.check("all of "+s.ref, body, s)
			}
		}
		method, path, _ := strings.Cut(key, " ")
		if op.try != "" {
			path = op.try
		}
		path = strings.NewReplacer("{$}", "", "{mesh}", "default", "{plural}", "dataplanes", "{name}", "web").Replace(path)
		a.checkQuery(method, path, op.query)
		got := a.do(method, path, op.send)
		switch media, want := got.header.Get("Content-Type"), b.of(op.answer); {
		case got.status/100 != 2 && !op.refused, got.status/100 == 2 && op.refused:
			t.Errorf("%s is answered with %d: %s", got.request, got.status, got.body)
		case op.refused:
			b.check(got.request, []byte(got.body), b.of(api.Error{}))
		case want.media != "":
			if !strings.HasPrefix(media, want.media) || got.body == "" {
				t.Errorf("%s is answered with %q and %d bytes, not with %s", got.request, media, len(got.body), want.media)
			}
		default:
			b.check(got.request, []byte(got.body), want)
		}
	}

	text := b.document(a.srv.Routes())
	const file = "../../../docs/openapi.yaml"
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(file, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	shown, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(shown) != string(text) {
		t.Errorf("docs/openapi.yaml differs from the routes and types: make golden updates it")
	}
}

// TestOpenAPIParameters holds the parameters of the operations to those that the sources read, in
// both directions.
func TestOpenAPIParameters(t *testing.T) {
	// read by index, and in a loop
	read := map[string]bool{"verbose": true, "tag": true, "delete": true, "mesh": true, "dataplane": true, "where": true}
	files, err := filepath.Glob("../*/*.go")
	if err != nil {
		t.Fatal(err)
	}
	parsers := []string{"Bool", "Int", "Items"} // of httpjson
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "../client/") ||
			strings.HasPrefix(name, "../web/") { // the page has an API of its own
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			literal := func(i int) string {
				if lit, ok := call.Args[i].(*ast.BasicLit); ok && lit.Kind == token.STRING {
					s, _ := strconv.Unquote(lit.Value)
					return s
				}
				return ""
			}
			switch fn := call.Fun.(type) {
			case *ast.Ident:
				if slices.Contains(parsers, fn.Name) {
					read[literal(1)] = true
				}
			case *ast.SelectorExpr:
				if slices.Contains(parsers, fn.Sel.Name) && len(call.Args) > 1 {
					read[literal(1)] = true
				}
				on, isVar := fn.X.(*ast.Ident)
				if of, ok := fn.X.(*ast.CallExpr); ok {
					sel, _ := of.Fun.(*ast.SelectorExpr)
					isVar = sel != nil && sel.Sel.Name == "Query"
				} else {
					isVar = isVar && (on.Name == "q" || on.Name == "values")
				}
				if fn.Sel.Name == "Get" && len(call.Args) == 1 && isVar {
					read[literal(0)] = true
				}
			}
			return true
		})
	}
	delete(read, "")
	said := map[string]bool{}
	for key, op := range operations {
		for _, p := range strings.Fields(op.query) {
			said[p] = true
			if !read[p] {
				t.Errorf("%s: nothing reads the parameter %s", key, p)
			}
		}
		for _, p := range strings.Fields(op.query + " " + op.headers) {
			if parameters[p] == "" {
				t.Errorf("%s: nothing says what %s means", key, p)
			}
		}
	}
	for p := range read {
		if !said[p] {
			t.Errorf("the sources read the parameter %s, which no operation has", p)
		}
	}
}
