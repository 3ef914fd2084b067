package generate_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/model/finding"
)

// words parses a proxy config from words "C:name=body" (clusters) and "L:name=body" (listeners).
// line is its inverse.
func words(text string) *generate.Proxy {
	p := &generate.Proxy{Sealed: &draft.Sealed{}}
	for _, w := range strings.Fields(text) {
		kind, rest, _ := strings.Cut(w, ":")
		name, body, _ := strings.Cut(rest, "=")
		rank := map[string]int{"C": draft.RankCluster, "L": draft.RankListener}[kind]
		p.Sealed.Resources[rank] = append(p.Sealed.Resources[rank], resourceOf(rank, name, body))
	}
	for rank, list := range p.Sealed.Resources {
		p.Sealed.Resources[rank], p.Sealed.Versions[rank] = draft.Order(list)
	}
	return p
}

// resourceOf returns a cluster, or a listener that refers to the cluster after the dot in the body.
func resourceOf(rank int, name, body string) *draft.Resource {
	var m proto.Message = &clusterv3.Cluster{Name: name, AltStatName: body}
	if rank == draft.RankListener {
		_, cluster, _ := strings.Cut(body, ".")
		filter, _ := anypb.New(&tcpv3.TcpProxy{ClusterSpecifier: &tcpv3.TcpProxy_Cluster{Cluster: cluster}})
		m = &listenerv3.Listener{Name: name, StatPrefix: body, FilterChains: []*listenerv3.FilterChain{{
			Filters: []*listenerv3.Filter{{ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: filter}}}}}}
	}
	raw, _ := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	return draft.NewResource(rank, name, raw)
}

// bodyOf returns the body of a resource that resourceOf returned.
func bodyOf(rank int, r *draft.Resource) string {
	if rank == draft.RankListener {
		m := &listenerv3.Listener{}
		_ = proto.Unmarshal(r.Body(), m)
		return m.StatPrefix
	}
	m := &clusterv3.Cluster{}
	_ = proto.Unmarshal(r.Body(), m)
	return m.AltStatName
}

func line(p *generate.Proxy) string {
	var out []string
	for rank, kind := range map[int]string{draft.RankCluster: "C", draft.RankListener: "L"} {
		for _, r := range p.Sealed.Resources[rank] {
			out = append(out, fmt.Sprintf("%s:%s=%s", kind, r.Name, bodyOf(rank, r)))
		}
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// TestWithhold checks that a withheld resource is replaced by its published version and the
// resources that this version needs, or removed, and that the result is checked as a whole. In
// these cases a body that starts with "bad" is rejected, a listener needs the cluster after the dot
// in its body, and the word before the dot must be unique among listeners.
func TestWithhold(t *testing.T) {
	check := func(p *generate.Proxy) (out []finding.Finding) {
		block := func(rank int, r *draft.Resource) {
			out = append(out, finding.Finding{Rule: 1, Severity: finding.Reject, Message: "no",
				Position: finding.Position{Type: draft.Types[rank], Resource: r.Name}})
		}
		clusters, taken := map[string]bool{}, map[string]bool{}
		for _, c := range p.Sealed.Resources[draft.RankCluster] {
			if clusters[c.Name] = true; strings.HasPrefix(bodyOf(draft.RankCluster, c), "bad") {
				block(draft.RankCluster, c)
			}
		}
		for _, l := range p.Sealed.Resources[draft.RankListener] {
			address, cluster, _ := strings.Cut(bodyOf(draft.RankListener, l), ".")
			if strings.HasPrefix(address, "bad") || cluster != "" && !clusters[cluster] || taken[address] {
				block(draft.RankListener, l)
			}
			taken[address] = true
		}
		if clusters["removed"] {
			return out
		}
		return append(out, finding.Finding{Rule: 2, Severity: finding.Reject, Message: "is removed",
			Position: finding.Position{Type: draft.TypeCluster, Resource: "removed"}})
	}
	for _, c := range []struct{ what, prev, now, want, withheld string }{
		{"nothing to withhold", "C:a=1", "C:a=2 L:l=x.a", "C:a=2 L:l=x.a", ""},
		{"the last form", "C:a=1 L:l=x.a", "C:a=2 L:l=bad.a", "C:a=2 L:l=x.a", "l"},
		{"with what it needs", "C:a=1 C:removed=1 L:l=x.removed", "C:a=2 L:l=bad.a", "C:a=2 C:removed=1 L:l=x.removed", "l"},
		{"no form", "C:a=1", "C:a=2 L:l=bad.a L:m=y.a", "C:a=2 L:m=y.a", "l"},
		{"nothing was published", "", "C:a=bad L:m=y.a L:n=z", "L:n=z", "a m"},
		{"of the same bytes", "C:removed=1 L:l=x.removed", "C:a=1 L:l=x.removed", "C:a=1 C:removed=1 L:l=x.removed", "l"},
		{"another one wants what the last form has", "L:l=x L:m=y", "L:l=bad L:m=x", "L:l=x L:m=y", "l m"},
		{"the last form is no longer fit", "C:a=bad L:l=x", "C:a=bad2 L:l=x", "L:l=x", "a"},
	} {
		p, prev := words(c.now), words(c.prev)
		if c.prev == "" {
			prev = &generate.Proxy{}
		}
		got, withheld := p.Withhold(check(p), prev.Sealed, check)
		var names []string
		for _, w := range withheld {
			names = append(names, w.ID.Name)
			if w.Resource == nil || w.Resource != p.Resource(w.ID) || w.Rule != 1 ||
				!strings.HasPrefix(w.Reason, "not sent: Envoy would reject it: no") {
				t.Errorf("%s: %+v", c.what, w)
			}
		}
		if line(got) != c.want || strings.Join(names, " ") != c.withheld {
			t.Errorf("%s: %s, withheld are %q, want %s and %q", c.what, line(got), names, c.want, c.withheld)
		}
		if same := line(got) == line(words(c.prev)); prev.Sealed != nil && (got.Sealed == prev.Sealed) != same {
			t.Errorf("%s: the config is the last one: %t, and shared: %t", c.what, same, !same)
		}
	}
}
