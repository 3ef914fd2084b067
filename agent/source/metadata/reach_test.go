package metadata_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/source/metadata"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// annotated returns a stream of default.web with annotations; nil: metadata without annotations.
func annotated(t testing.TB, annotations any) access.Stream {
	t.Helper()
	fields := map[string]any{}
	if annotations != nil {
		fields[metadata.MetadataAnnotations] = annotations
	}
	m, err := structpb.NewStruct(fields)
	if err != nil {
		t.Fatal(err)
	}
	return access.Stream{Node: &core.Node{Id: "default.web", Metadata: m},
		Key: node.Key{ID: "default.web", Flavor: node.FlavorEnvoy}, Grant: everything}
}

// TestSidecarReach checks that annotations are in effect while the proxy has a stream and for the
// grace time, and that an invalid annotation affects only itself.
func TestSidecarReach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		changes := 0
		e := newEnvoys(agenttest.Memory(t), func(o *metadata.Options) { o.Changed = func() { changes++ } })
		go e.Run(t.Context())
		backends := func(v string) map[string]any { return map[string]any{resource.AnnotationReachableBackends: v} }
		const one, services = "refs: [{kind: MeshService, name: a}]", resource.AnnotationReachableServices
		for _, step := range []struct {
			name        string
			annotations any // of the next stream; false: no stream
			want        string
			changes     int
			problem     string
		}{
			{"no annotations", nil, "", 0, ""},
			{"an invalid annotation has no effect", backends("refs: [{kind: MeshService}]"), "", 0,
				`Dataplane/default/web error an annotation of its Envoy is invalid, it has no effect: node.metadata.annotations["kuma.io/reachable-backends"].refs[0].name: the name is missing`},
			{"a restriction", backends(one), "a", 1, ""},
			{"the same again", backends(one), "a", 1, ""},
			{"a stream without metadata", "none", "a", 1, ""},
			{"an invalid one changes nothing",
				backends("{refs"), "a", 1, "the last valid value stays in force: node.metadata.annotations"},
			{"with a valid one", map[string]any{resource.AnnotationReachableBackends: "x", services: "s,t"}, "a s t", 2,
				"the last valid value stays in force"},
			{"not a string", map[string]any{services: 7.0}, "a s t", 2, "it is not a string"},
			{"not a map", "text", "a s t", 2, "it is not a map of strings"},
			{"nothing reachable", backends("refs: []"), "none", 3, ""},
			{"no annotations again", nil, "", 4, ""},
			{"many others", map[string]any{"a": "b", resource.AnnotationReachableBackends: one}, "a", 5, ""},
		} {
			st := annotated(t, step.annotations)
			if step.annotations == "none" {
				st.Node.Metadata = nil
			}
			agenttest.Do(t, e.Opened(st))
			synctest.Wait()
			if got := sidecarSays(e); got != step.want || changes != step.changes {
				t.Fatalf("%s: %q after %d changes, want %q after %d", step.name, got, changes, step.want, step.changes)
			}
			var problems []string
			for _, p := range e.Problems() {
				problems = append(problems, p.Resource+" "+p.Severity+" "+p.Reason)
			}
			if len(problems) > 1 || strings.Join(problems, "") == "" != (step.problem == "") ||
				!strings.Contains(strings.Join(problems, ""), step.problem) {
				t.Fatalf("%s: problems %q, want %q", step.name, problems, step.problem)
			}
		}
		for range 12 {
			e.Closed(annotated(t, nil))
		}
		time.Sleep(29 * time.Second)
		synctest.Wait()
		if got := sidecarSays(e); got != "a" {
			t.Errorf("within the grace time: %q", got)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := sidecarSays(e); got != "" || changes != 6 {
			t.Errorf("after the grace time: %q after %d changes", got, changes)
		}
	})
}

func sidecarSays(e *metadata.Source) string {
	r := e.Sidecars("default")["web"]
	if r == nil {
		return ""
	}
	var out []string
	if r.Backends != nil {
		for _, ref := range r.Backends.Refs {
			out = append(out, ref.Name)
		}
		if len(out) == 0 {
			out = []string{"none"}
		}
	}
	return strings.Join(append(out, r.Services...), " ")
}

// TestUnifiedNaming checks that a proxy whose metadata lists unified resource naming has a warning
// until it connects without it.
func TestUnifiedNaming(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnvoys(agenttest.Memory(t), nil)
		go e.Run(t.Context())
		for _, c := range []struct {
			features []any
			want     bool
		}{{[]any{"feature-delta-grpc"}, false}, {[]any{"feature-delta-grpc", "feature-unified-resource-naming"}, true},
			{nil, false}} {
			m, err := structpb.NewStruct(map[string]any{"features": c.features})
			if err != nil {
				t.Fatal(err)
			}
			st := access.Stream{Node: &core.Node{Id: "default.web", Metadata: m},
				Key: node.Key{ID: "default.web", Flavor: node.FlavorEnvoy}, Grant: everything}
			if err := e.Opened(st); err != nil {
				t.Fatal(err)
			}
			problems := e.Problems()
			if got := len(problems) == 1 && problems[0].Resource == "Dataplane/default/web" &&
				strings.Contains(problems[0].Reason, resource.LaterVersion); got != c.want || len(problems) > 1 {
				t.Errorf("features %v: %v", c.features, problems)
			}
		}
	})
}
