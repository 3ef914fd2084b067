package edges_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/answer/edges"
	"github.com/nearside-mesh/nearside/agent/answer/explain"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/test/kindtest"
)

// TestAgreesWithExplain compares the permission and reach of all pairs with explanations of real
// connections and requests, which follow the finished configs of both proxies.
func TestAgreesWithExplain(t *testing.T) {
	inputs := kindtest.OwnInputs(t)
	t.Run("own", func(t *testing.T) { agreeAll(t, inputs, 200) })
	t.Run("conformance", func(t *testing.T) { agreeAll(t, kindtest.ConformanceInputs(t), 20) })
}

// agreeAll compares inputs. least is the number of decisions that must be compared.
func agreeAll(t *testing.T, inputs []kindtest.MeshInput, least int) {
	compared := 0
	eachMesh(t, inputs, func(name string, m *generate.Mesh) { compared += agree(t, name, m) })
	if compared < least {
		t.Errorf("only %d decisions were compared", compared)
	}
	t.Logf("%d decisions", compared)
}

// eachMesh calls a function with each mesh of some inputs.
func eachMesh(t *testing.T, inputs []kindtest.MeshInput, each func(name string, m *generate.Mesh)) {
	t.Helper()
	for _, in := range inputs {
		set := resource.NewSet(in.Resources)
		for _, r := range in.Resources {
			if r.Kind != "Mesh" {
				continue
			}
			m, err := generate.NewMesh(set, r.Name, mesh.Options{}, kinds.Plugins(), policy.Options{}, nil)
			if err != nil {
				t.Fatalf("%s: %v", in.Name, err)
			}
			each(in.Name, m)
		}
	}
}

// outcome is the sum of explanations for an edge.
type outcome struct {
	reach, allowed, denied bool
	unknown                bool // another cause decides, or nothing is known about the server
	why                    []string
	policies               map[string]bool // behind the explanations of the servers
}

// agree compares all edges of a mesh.
func agree(t *testing.T, name string, m *generate.Mesh) (compared int) {
	g := edges.NewGraph(m, nil)
	nodes := map[string]string{} // names of services by destination
	for _, s := range g.Page(edges.Query{}).Services(nil) {
		for _, d := range s.Destinations {
			nodes[d] = s.Name
		}
	}
	traffic := explain.NewTraffic(m)
	want := map[[2]string]*outcome{}
	for _, d := range m.View.Dataplanes() {
		dp := d.Spec.(*resource.Dataplane)
		b, err := explain.ProxyBackends(m, d.Name)
		if err != nil {
			t.Fatal(err)
		}
		for i := range b.Items {
			x := &b.Items[i]
			to, ok := nodes[x.Destination.String()]
			if !ok {
				t.Errorf("%s: %s is in no service", name, x.Destination)
			}
			for from := range m.View.ProxyTags(dp)[resource.TagService] {
				k := [2]string{m.View.ProxyTags(dp)[resource.TagService][from], to}
				if want[k] == nil {
					want[k] = &outcome{}
				}
				want[k].add(m, traffic, d.Name, x)
			}
		}
	}
	p := g.Page(edges.Query{All: true})
	for _, e := range p.Edges(0, p.Total) {
		w := want[[2]string{e.From, e.To}]
		if w == nil {
			t.Errorf("%s: there is no pair %s, %s", name, e.From, e.To)
			continue
		}
		if e.Reach != w.reach {
			t.Errorf("%s: %s to %s: reach %v, want %v", name, e.From, e.To, e.Reach, w.reach)
		}
		if !w.reach || w.unknown {
			continue
		}
		compared++
		if p := e.Policy; p != nil && !w.policies[p.Type+"/"+p.Name] {
			t.Errorf("%s: %s to %s: explanations do not name %s/%s: %s", name, e.From, e.To, p.Type, p.Name,
				strings.Join(w.why, " | "))
		}
		expected := map[[2]bool]string{{true, false}: api.EdgeAllowed, {false, true}: api.EdgeDenied,
			{true, true}: api.EdgePartly}[[2]bool{w.allowed, w.denied}]
		if expected != e.Permission {
			t.Errorf("%s: %s to %s: %s (%s), want %s: %s", name, e.From, e.To, e.Permission, e.Why, expected,
				strings.Join(w.why, " | "))
		}
	}
	return compared
}

// add explains a connection or request of a dataplane to a service.
func (o *outcome) add(m *generate.Mesh, traffic *explain.Traffic, from string, x *explain.CallableBackend) {
	if !x.Reachable {
		return
	}
	o.reach = true
	flow, err := ask(m, traffic, from, x)
	if err != nil || !strings.HasPrefix(flow.Listener, "outbound:") {
		o.unknown = true
		return
	}
	if len(flow.Clusters) != 1 || flow.Clusters[0].Name != x.Cluster || len(flow.Servers) == 0 {
		o.unknown = true // routed elsewhere, or nothing is known about the servers
		return
	}
	for i := range flow.Servers {
		s := &flow.Servers[i]
		refused := strings.Contains(s.Reason, "; no policy allows ") || strings.Contains(s.Reason, "; policies for ")
		switch {
		case s.Verdict == explain.VerdictAllowed:
			o.allowed = true
		case refused:
			o.denied = true
		default:
			o.unknown = true
		}
		if o.policies == nil {
			o.policies = map[string]bool{}
		}
		for _, p := range s.Policies {
			o.policies[p.Type+"/"+p.Name] = true
		}
		o.why = append(o.why, fmt.Sprintf("%s %s: %s", s.Dataplane.Name, s.Verdict, s.Reason))
	}
}

func ask(m *generate.Mesh, traffic *explain.Traffic, from string, x *explain.CallableBackend) (*explain.Flow, error) {
	if len(x.Addresses) == 0 {
		return nil, fmt.Errorf("%s has no address", x.Destination)
	}
	target := explain.Target{Mesh: m.View.Name, From: from, To: at(x.Addresses[0])}
	for _, s := range m.View.Services() {
		if s.ID.Name == x.Cluster && s.ID.Kind == x.Kind && s.Protocol.HTTP() {
			return traffic.Request(&explain.RequestQuestion{Target: target})
		}
	}
	return traffic.Connection(&explain.ConnectionQuestion{Target: target})
}

func at(a netip.AddrPort) string { return a.String() }

// TestMatcher compares the matcher of permissions, which looks at few policies, with the one of
// proxies.
func TestMatcher(t *testing.T) {
	inputs, matched := kindtest.OwnInputs(t), 0
	eachMesh(t, inputs, func(name string, m *generate.Mesh) {
		matcher := m.Policies.PermissionMatcher()
		for _, d := range m.View.Dataplanes() {
			var want []string
			for _, p := range m.Policies.Match(d).Policies() {
				if strings.HasSuffix(p.Kind, "TrafficPermission") {
					want = append(want, p.Key.String())
				}
			}
			var got []string
			for _, p := range matcher.Match(d).Policies() {
				got = append(got, p.Key.String())
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: %s: %q, want %q", name, d.Key, got, want)
			}
			matched += len(want)
		}
	})
	if matched < 20 {
		t.Errorf("only %d policies matched", matched)
	}
}
