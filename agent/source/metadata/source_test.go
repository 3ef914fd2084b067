package metadata_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/source/metadata"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// everything grants all rights, like root.
var everything = access.Grant{Rule: "test", Bring: true, Services: []string{"*"}, Tags: []string{"*"}}

func stream(t testing.TB, id string, dataplane any) access.Stream {
	n := &core.Node{Id: id}
	if dataplane != nil {
		n.Metadata = agenttest.Metadata(t, dataplane)
	}
	return access.Stream{Node: n, Key: node.Key{ID: id, Flavor: node.FlavorEnvoy}, Grant: everything}
}

func newEnvoys(s *store.Store, change func(*metadata.Options)) *metadata.Source {
	o := metadata.Options{Registry: kinds.Registry(), Store: s}
	if change != nil {
		change(&o)
	}
	return metadata.New(o)
}

func TestEnvoyGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := agenttest.Memory(t)
		e := newEnvoys(s, nil)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go e.Run(ctx)
		expect := func(when, want string) {
			t.Helper()
			synctest.Wait()
			if got := agenttest.Has(s); got != want {
				t.Fatalf("%s: %q, want %q", when, got, want)
			}
		}
		web := stream(t, "default.web", agenttest.DataplaneText("default", "web", "10.0.0.1"))
		open := func(st access.Stream) { t.Helper(); agenttest.Do(t, e.Opened(st)) }

		open(web)
		expect("with a stream", "envoy:default.web 10.0.0.1")
		time.Sleep(time.Hour)
		expect("with a long stream", "envoy:default.web 10.0.0.1")
		open(web)
		e.Closed(web)
		time.Sleep(time.Minute)
		expect("with one of two streams", "envoy:default.web 10.0.0.1")
		e.Closed(web)
		time.Sleep(29 * time.Second)
		expect("within the grace time", "envoy:default.web 10.0.0.1")
		open(stream(t, "default.web", agenttest.DataplaneText("default", "web", "10.0.0.2")))
		time.Sleep(time.Minute)
		expect("after it came back with other content", "envoy:default.web 10.0.0.2")
		e.Closed(web)
		time.Sleep(29 * time.Second)
		open(stream(t, "default.web", nil)) // a stream without metadata counts too
		time.Sleep(time.Minute)
		expect("with a stream without metadata", "envoy:default.web 10.0.0.2")
		e.Closed(web)
		time.Sleep(31 * time.Second)
		expect("after the grace time", "")

		// The grace time of Dataplanes from an earlier run starts with the source.
		open(web)
		synctest.Wait()
		stop()
		restarted := newEnvoys(s, nil)
		go restarted.Run(t.Context())
		time.Sleep(29 * time.Second)
		expect("within the grace time of a restart", "envoy:default.web 10.0.0.1")
		time.Sleep(2 * time.Second)
		expect("after the grace time of a restart", "")
	})
}

func TestEnvoyConflict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := agenttest.Memory(t), agenttest.NewLogs()
		e := newEnvoys(s, func(o *metadata.Options) { o.Log = l.Logger() })
		go e.Run(t.Context())
		agenttest.ByAPI(t, s, agenttest.DataplaneText("default", "web", "10.9.9.9"))
		web := stream(t, "default.web", agenttest.DataplaneText("default", "web", "10.0.0.1"))
		agenttest.Do(t, e.Opened(web))
		synctest.Wait()
		if got := agenttest.Has(s); got != "api 10.9.9.9" {
			t.Fatalf("the API's Dataplane does not hold: %q", got)
		}
		p := e.Problems()
		if len(p) != 1 || p[0].Resource != "Dataplane/default/web" || !strings.Contains(p[0].Reason, "belongs to api") {
			t.Errorf("problems: %+v", p)
		}
		if !strings.Contains(l.String(), "belongs to api") {
			t.Errorf("log: %s", l)
		}
		// It is stored when the other one is deleted.
		if _, err := s.Apply(store.Batch{Source: store.Source{Kind: store.SourceAPI}, Durable: true,
			Ops: []store.Op{{Delete: agenttest.WebKey}}}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := agenttest.Has(s); got != "envoy:default.web 10.0.0.1" || len(e.Problems()) != 0 {
			t.Errorf("after the API's Dataplane went: %q, %v", got, e.Problems())
		}
		e.Closed(web)
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := agenttest.Has(s); got != "" {
			t.Errorf("after the grace time: %q", got)
		}
	})
}

func TestEnvoyRefusals(t *testing.T) {
	good := agenttest.DataplaneText("default", "web", "10.0.0.1")
	for _, c := range []struct {
		name, id  string
		dataplane any
		want      []string
	}{
		{"not a text", "default.web", map[string]any{"type": "Dataplane"}, []string{"is not a string"}},
		{"not YAML", "default.web", "{", []string{`node "default.web"`, "dataplane.resource"}},
		{"another kind", "default.web", "type: Mesh\nname: web\n", []string{"holds a Mesh; only a Dataplane is allowed"}},
		{"another node", "default.other", good,
			[]string{`node "default.other"`, `Dataplane "web" of mesh "default"`, `node ID "default.web"`}},
		{"another mesh", "m.web", good, []string{`"m.web"`, `"default.web"`}},
		{"two", "default.web", "---\n" + good + "\n---\n" + agenttest.DataplaneText("default", "x", "10.0.0.2"),
			[]string{"holds 2 resources"}},
		{"none", "default.web", "", []string{"holds 0 resources"}},
		{"unknown field", "default.web", "type: Dataplane\nname: web\nmesh: default\n" +
			"networking: {address: 10.0.0.1, adres: x}\n", []string{"networking.adres"}},
		{"too large", "default.web", good + strings.Repeat(" ", 64<<10), []string{"bytes; at most 65536 are allowed"}},
		{"many faults", "default.web", strings.Repeat("---\ntype: Nonsense\n", 1000), []string{"Nonsense"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := agenttest.Memory(t)
			err := newEnvoys(s, nil).Opened(stream(t, c.id, c.dataplane))
			if status.Code(err) != codes.InvalidArgument {
				t.Fatalf("error %v, want InvalidArgument", err)
			}
			for _, w := range c.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("error %q does not contain %q", err, w)
				}
			}
			if len(err.Error()) > 3000 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
			if s.Snapshot().Revision() != 0 {
				t.Error("something was stored")
			}
		})
	}
}

func TestEnvoyNodesAreBounded(t *testing.T) {
	s := agenttest.Memory(t)
	e := newEnvoys(s, func(o *metadata.Options) { o.Nodes = 3 })
	changed, stop := s.Watch()
	defer stop()
	run(t, e)
	open := func(name string) error {
		return e.Opened(stream(t, "default."+name, agenttest.DataplaneText("default", name, "10.0.0.1")))
	}
	agenttest.Do(t, open("a"), open("b"), open("c"), open("a"))
	if err := open("d"); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a fourth node: %v", err)
	}
	agenttest.Do(t, e.Opened(stream(t, "default.d", nil))) // a node without metadata is not counted
	agenttest.Await(t, "three nodes are stored", changed, func() bool { return s.Snapshot().Len() == 3 })
}

// TestRefusedStream checks that the Dataplane of a stream whose peer was refused stays only for the
// grace time of earlier streams.
func TestRefusedStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := agenttest.Memory(t)
		e := newEnvoys(s, nil)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go e.Run(ctx)
		web := stream(t, "default.web", agenttest.DataplaneText("default", "web", "10.0.0.1"))
		refused := web
		refused.Refused = true
		expect := func(when, want string) {
			t.Helper()
			synctest.Wait()
			if got := agenttest.Has(s); got != want {
				t.Fatalf("%s: %q, want %q", when, got, want)
			}
		}
		agenttest.Do(t, e.Opened(web))
		e.Closed(refused)
		expect("after a refused stream", "")
		agenttest.Do(t, e.Opened(web))
		agenttest.Do(t, e.Opened(web))
		e.Closed(web)
		time.Sleep(20 * time.Second)
		e.Closed(refused)
		expect("within the grace time of the other stream", "envoy:default.web 10.0.0.1")
		for range 3 { // refused streams do not prolong it
			agenttest.Do(t, e.Opened(web))
			e.Closed(refused)
			time.Sleep(4 * time.Second)
		}
		expect("after the grace time", "")
	})
}

func FuzzEnvoyMetadata(f *testing.F) {
	f.Add("default.web", agenttest.DataplaneText("default", "web", "10.0.0.1"))
	f.Add("default.web", "type: Dataplane\nname: web\n")
	f.Add("a.b", "{")
	f.Fuzz(func(t *testing.T, id, text string) {
		s := agenttest.Memory(t)
		n := &core.Node{Id: id, Metadata: &structpb.Struct{
			Fields: map[string]*structpb.Value{metadata.MetadataDataplane: structpb.NewStringValue(text)},
		}}
		e := newEnvoys(s, nil)
		err := e.Opened(access.Stream{Node: n, Key: node.Key{ID: id}, Grant: everything})
		over, stop := context.WithCancel(t.Context())
		stop()
		e.Run(over)
		if err != nil {
			if s.Snapshot().Len() != 0 {
				t.Fatalf("refused with %v and stored", err)
			}
			return
		}
		for _, r := range s.Snapshot().Records() {
			if r.Kind != "Dataplane" || r.Mesh+"."+r.Name != id {
				t.Fatalf("node %q stored %s", id, r.Key)
			}
		}
	})
}
