package explain_test

import (
	"bytes"
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/nearside-mesh/nearside/agent/answer/explain"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/test/kindtest"
)

// meshOf builds a mesh from documents of any kind.
func meshOf(t testing.TB, docs string) *generate.Mesh {
	t.Helper()
	rs, faults := kinds.Registry().Decode("resources.yaml", []byte(docs))
	if err := faults.Err(); err != nil {
		t.Fatal(err)
	}
	m, err := generate.NewMesh(resource.NewSet(rs), "default", mesh.Options{}, kinds.Plugins(), policy.Options{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// asked is a question of a test case.
type asked struct {
	Connection *explain.ConnectionQuestion `json:"connection"`
	Request    *explain.RequestQuestion    `json:"request"`
}

func (q *asked) ask(t *explain.Traffic) (*explain.Flow, error) {
	if q.Request != nil {
		return t.Request(q.Request)
	}
	return t.Connection(q.Connection)
}

// TestFlows compares complete documents: each file ask/NAME has an expected want/NAME.
func TestFlows(t *testing.T) {
	kindtest.Cases(t, "testdata/flow/*.txtar", func(t *testing.T, name string, ar *txtar.Archive) {
		var traffic *explain.Traffic
		var out []txtar.File
		want := map[string]string{}
		for _, f := range ar.Files {
			if n, ok := strings.CutPrefix(f.Name, "want/"); ok {
				want[n] = string(f.Data)
			}
		}
		for _, f := range ar.Files {
			if f.Name == "resources.yaml" {
				traffic = explain.NewTraffic(meshOf(t, string(f.Data)))
				out = append(out, f)
			}
			n, ok := strings.CutPrefix(f.Name, "ask/")
			if !ok {
				continue
			}
			var q asked
			if err := json.Unmarshal(f.Data, &q); err != nil {
				t.Fatal(err)
			}
			got := text(t, traffic, &q)
			if second := text(t, explain.NewTraffic(meshOf(t, resources(ar))), &q); second != got {
				t.Errorf("%s: the same question gives different answers", n)
			}
			if os.Getenv("UPDATE_GOLDEN") == "" && got != want[n] {
				t.Errorf("%s: got\n%s\nwant\n%s", n, got, want[n])
			}
			out = append(out, f, txtar.File{Name: "want/" + n, Data: []byte(got)})
		}
		if os.Getenv("UPDATE_GOLDEN") != "" {
			if err := os.WriteFile(name, txtar.Format(&txtar.Archive{Comment: ar.Comment, Files: out}), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func resources(ar *txtar.Archive) string {
	for _, f := range ar.Files {
		if f.Name == "resources.yaml" {
			return string(f.Data)
		}
	}
	return ""
}

func text(t *testing.T, traffic *explain.Traffic, q *asked) string {
	t.Helper()
	flow, err := q.ask(traffic)
	if err != nil {
		return "error: " + err.Error() + "\n"
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(flow); err != nil {
		t.Fatal(err)
	}
	// One line per step, server, cluster, and other part makes differences readable.
	return strings.TrimPrefix(regexp.MustCompile(`"(reason|dataplane|clusters|closedAt|steps|accessLogs|effects|mirrors|servers|suggest|shadow|parts)":|"listener":"[^"]*","filterChain|\{"(at|verdict)":`).
		ReplaceAllString(b.String(), "\n$0"), "\n")
}
