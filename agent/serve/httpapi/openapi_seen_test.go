package httpapi_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"go.yaml.in/yaml/v3"
)

// specDocument is docs/openapi.yaml, as far as tests read it.
type specDocument struct {
	Paths      map[string]map[string]*specOperation
	Components struct {
		Parameters map[string]*specParameter
		Responses  map[string]*specResponse
	}
}

type specOperation struct {
	OperationID string `yaml:"operationId"`
	Permission  struct {
		Level string
		AnyOf []string `yaml:"anyOf"`
		Kind  string
		Some  bool
	} `yaml:"x-permission"`
	Security    *[]map[string][]string
	Parameters  []*specParameter
	RequestBody *struct {
		MaxBytes int `yaml:"x-maxBytes"`
	} `yaml:"requestBody"`
	Responses map[string]*specResponse
}

type specParameter struct {
	Ref      string `yaml:"$ref"`
	Name, In string
	Required bool
	Explode  *bool
	Schema   specValues
}

type specValues struct {
	Type             string
	Minimum, Maximum *int
	MaxLength        int `yaml:"maxLength"`
	MaxItems         int `yaml:"maxItems"`
	Pattern          string
	Enum             []string
	Default          any
	Items            *specValues
}

type specResponse struct {
	Ref     string `yaml:"$ref"`
	Content map[string]struct {
		Schema struct {
			AllOf []struct {
				Properties struct {
					Type   struct{ Enum []string }
					Status struct{ Const int }
				}
			} `yaml:"allOf"`
		}
		Examples map[string]struct{ Value map[string]any }
	}
}

// problems returns the types of problem documents of a response.
func (x *specResponse) problems() (types []string) {
	for _, of := range x.Content["application/problem+json"].Schema.AllOf {
		types = append(types, of.Properties.Type.Enum...)
	}
	return types
}

// spec reads docs/openapi.yaml, with references to parameters and responses resolved.
var spec = sync.OnceValue(func() *specDocument {
	text, err := os.ReadFile("../../../docs/openapi.yaml")
	var d specDocument
	if err == nil {
		err = yaml.Unmarshal(text, &d)
	}
	if err != nil {
		panic(err)
	}
	for _, methods := range d.Paths {
		for _, op := range methods {
			for i, p := range op.Parameters {
				op.Parameters[i] = d.Components.Parameters[strings.TrimPrefix(p.Ref, "#/components/parameters/")]
			}
			for status, r := range op.Responses {
				if name, ok := strings.CutPrefix(r.Ref, "#/components/responses/"); ok {
					op.Responses[status] = d.Components.Responses[name]
				}
			}
		}
	}
	return &d
})

// each calls a function for each operation, in order.
func (d *specDocument) each(f func(method, path string, op *specOperation)) {
	for _, path := range slices.Sorted(maps.Keys(d.Paths)) {
		for _, method := range slices.Sorted(maps.Keys(d.Paths[path])) {
			f(strings.ToUpper(method), path, d.Paths[path][method])
		}
	}
}

// operationAt finds the operation of a request.
var operationAt = sync.OnceValue(func() func(r *http.Request) *specOperation {
	mux := http.NewServeMux()
	ops := map[string]*specOperation{}
	spec().each(func(method, path string, op *specOperation) {
		if path == "/" {
			path = "/{$}"
		}
		mux.Handle(method+" "+path, http.NotFoundHandler())
		ops[method+" "+path] = op
	})
	return func(r *http.Request) *specOperation {
		_, pattern := mux.Handler(r)
		return ops[pattern]
	}
})

// seen are the failures that tests have provoked, by operation.
var seen sync.Map

// documented checks that docs/openapi.yaml lists the status of an answer and the type of its
// problem. Answers of paths and methods that do not exist belong to no operation.
func documented(t testing.TB, method, path string, got answer) {
	t.Helper()
	op := operationAt()(httptest.NewRequest(method, "http://x"+path, nil))
	if op == nil || got.status == http.StatusMethodNotAllowed || got.status == http.StatusRequestHeaderFieldsTooLarge {
		return
	}
	if op.OperationID == "metrics" && got.status == http.StatusNotFound {
		return // a server without metrics
	}
	r := op.Responses[strconv.Itoa(got.status)]
	if r == nil {
		t.Errorf("%s: docs/openapi.yaml has no status %d for %s: %s", got.request, got.status, op.OperationID, got.body)
		return
	}
	if got.header.Get("Content-Type") != "application/problem+json" || method == http.MethodHead {
		return
	}
	var p struct{ Type string }
	if err := json.Unmarshal([]byte(got.body), &p); err != nil {
		t.Errorf("%s: %v: %s", got.request, err, got.body)
	}
	if !slices.Contains(r.problems(), p.Type) {
		t.Errorf("%s: docs/openapi.yaml has no problem %d %s for %s: %s", got.request, got.status, p.Type, op.OperationID,
			got.body)
	}
	seen.Store(fmt.Sprintf("%s: %d %s", op.OperationID, got.status, p.Type), true)
}

// complete compares the documented failures that no test has provoked with a list, after all tests
// have run. UPDATE_GOLDEN=1 rewrites the list.
type complete struct{ *testing.M }

func (c complete) Run() int {
	code := c.M.Run()
	for _, name := range []string{"test.run", "test.skip", "test.fuzz", "test.list", "test.bench"} {
		if f := flag.Lookup(name); f != nil && f.Value.String() != "" {
			return code
		}
	}
	if code != 0 || os.Getuid() != 0 { // some tests need root
		return code
	}
	const file = "testdata/unprovoked.txt"
	text := ""
	spec().each(func(_, _ string, op *specOperation) {
		for _, status := range slices.Sorted(maps.Keys(op.Responses)) {
			for _, typ := range op.Responses[status].problems() {
				key := op.OperationID + ": " + status + " " + typ
				if _, ok := seen.Load(key); !ok {
					text += key + "\n"
				}
			}
		}
	})
	want, err := os.ReadFile(file)
	switch {
	case os.Getenv("UPDATE_GOLDEN") != "":
		err = os.WriteFile(file, []byte(text), 0o600)
	case err == nil && string(want) != text:
		err = errors.New("these failures are documented, and no test provokes them; add a test, or a row to " + file +
			":\n" + text)
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	return code
}
