package envoy_test

import (
	"fmt"
	"slices"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"pgregory.net/rapid"

	"github.com/nearside-mesh/nearside/agent/compute/check"
	"github.com/nearside-mesh/nearside/agent/compute/envoy"
	"github.com/nearside-mesh/nearside/agent/model/finding"
)

// TestHeldBackKeepsTheOlderForm checks that references to a withheld resource are valid if the
// proxy has accepted a previous version of it.
func TestHeldBackKeepsTheOlderForm(t *testing.T) {
	certificate, key := keyPair(t)
	good, bad := newBase(certificate, key), newBase(certificate, key)
	bad.static.ConnectTimeout = durationpb.New(-1)
	prev, next := snapshot(t, good.messages()...), snapshot(t, bad.messages()...)
	resources := func(prev *envoy.Snapshot) []string {
		var out []string
		for _, f := range check.Check(prev, next, bad.facts) {
			if f.Severity.Blocks() && !slices.Contains(out, f.Resource) {
				out = append(out, f.Resource)
			}
		}
		return out
	}
	if got, want := resources(prev), []string{"static"}; !slices.Equal(got, want) {
		t.Errorf("with an older form these are held back: %v, want %v", got, want)
	}
	if got, want := resources(nil), []string{"static", "in"}; !slices.Equal(got, want) {
		t.Errorf("without one these are held back: %v, want %v", got, want)
	}
}

// TestNeverThere checks that a missing cluster is not reported as removed if the proxy never had
// it.
func TestNeverThere(t *testing.T) {
	certificate, key := keyPair(t)
	b := newBase(certificate, key)
	b.tcp.ClusterSpecifier = &tcpv3.TcpProxy_Cluster{Cluster: "never"}
	s := snapshot(t, b.messages()...)
	found := check.Check(s, s, b.facts)
	if len(found) != 1 || found[0].Rule != 31 {
		t.Errorf("%+v", found)
	}
}

// TestFindingsAreSorted checks that findings are sorted by kind, name, severity, and rule, in any
// order of the resources.
func TestFindingsAreSorted(t *testing.T) {
	certificate, key := keyPair(t)
	b := newBase(certificate, key)
	b.static.ConnectTimeout = nil
	b.listener.UseOriginalDst = nil
	b.match(0).AddressSuffix, b.match(1).ServerNames = "x", []string{"*.*.b"}
	b.hcm.HttpFilters = nil
	b.eds.EdsClusterConfig.ServiceName = "gone"
	s := snapshot(t, b.messages()...)
	want := check.Check(nil, s, b.facts)
	if len(want) < 5 {
		t.Fatalf("only %d findings", len(want))
	}
	for i := 1; i < len(want); i++ {
		a, b := want[i-1], want[i]
		if a.Type == b.Type && (a.Resource > b.Resource || a.Resource == b.Resource && a.Severity > b.Severity) {
			t.Errorf("%+v stands before %+v", a, b)
		}
	}
	for range 10 {
		for k := range s {
			slices.Reverse(s[k])
		}
		if d := cmp.Diff(want, check.Check(nil, s, b.facts)); d != "" {
			t.Fatal(d)
		}
	}
}

// TestCheckerRemembers compares a reused checker with a new one over random changes of a config. It
// also checks that later checks do not modify earlier findings.
func TestCheckerRemembers(t *testing.T) {
	certificate, key := keyPair(t)
	breakers := ruleCases()
	hosts := []*finding.Facts{
		{}, {}, {SecretsLater: true}, {StaticClusters: []string{"static"}},
		{Build: &finding.Build{Version: finding.Version{Major: 1, Minor: 30}}},
		{Host: &finding.Host{Unwritable: map[string]string{"/var/log/a.log": "it is a directory",
			"/dev/stdout": "it is closed"}}}, {Host: &finding.Host{}},
		{Taken: map[string]string{"0.0.0.0:80": "nginx"}}, {NoIPv6: true, LowestPort: 1024},
	}
	rapid.Check(t, func(t *rapid.T) {
		var warm check.Checker
		var prev *envoy.Snapshot
		facts := &finding.Facts{}
		var last, kept []finding.Finding
		for range 4 {
			b := newBase(certificate, key)
			for range rapid.IntRange(0, 2).Draw(t, "broken") {
				c := breakers[rapid.IntRange(0, len(breakers)-1).Draw(t, "rule")]
				func() {
					defer func() { _ = recover() }() // a case may panic if an earlier case removed its target
					c.breaks(b)
				}()
			}
			var messages []proto.Message
			func() {
				defer func() { _ = recover() }()
				messages = b.messages()
			}()
			next := &envoy.Snapshot{}
			for _, m := range messages {
				r, err := envoy.NewResource(m)
				if err != nil {
					continue
				}
				for k := range envoy.NumKinds {
					if k.URL() == "type.googleapis.com/"+string(m.ProtoReflect().Descriptor().FullName()) {
						next[k] = append(next[k], r)
					}
				}
			}
			got, want := warm.Check(prev, next, facts), check.Check(prev, next, facts)
			if d := cmp.Diff(want, got); d != "" {
				t.Fatalf("fresh and warm (-, +):\n%s", d)
			}
			if d := cmp.Diff(kept, last); d != "" {
				t.Fatalf("what an earlier check gave out has changed:\n%s", d)
			}
			last, kept, prev = got, slices.Clone(got), next
			// The same resources in a different order, with some removed and some duplicated.
			other := &envoy.Snapshot{}
			for k := range next {
				for _, r := range next[k] {
					for range rapid.SampledFrom([]int{1, 1, 1, 0, 2}).Draw(t, "times") {
						other[k] = append(other[k], r)
					}
				}
				if rapid.Bool().Draw(t, "reversed") {
					slices.Reverse(other[k])
				}
			}
			if d := cmp.Diff(check.Check(next, other, facts), warm.Check(next, other, facts)); d != "" {
				t.Fatalf("fresh and warm, in another order (-, +):\n%s", d)
			}
			// Some kinds are unchanged since the last check, as for the next proxy on the same or
			// another host.
			lists := []*envoy.Snapshot{next, other, {}}
			for range 4 {
				var from, to envoy.Snapshot
				for k := range to {
					from[k] = lists[rapid.IntRange(0, 2).Draw(t, "from")][k]
					to[k] = lists[rapid.SampledFrom([]int{0, 0, 0, 1, 2}).Draw(t, "to")][k]
				}
				about := *hosts[rapid.IntRange(0, len(hosts)-1).Draw(t, "host")]
				if d := cmp.Diff(check.Check(&from, &to, &about), warm.Check(&from, &to, &about)); d != "" {
					t.Fatalf("fresh and warm, partly the same (-, +):\n%s", d)
				}
			}
		}
	})
}

// TestCheckIsBounded checks that the number of findings per resource is bounded.
func TestCheckIsBounded(t *testing.T) {
	l := secondListener("l", address("0.0.0.0", 1))
	for i := range 500 {
		l.FilterChains = append(l.FilterChains, chain(fmt.Sprint(i), "tls *x.com"))
	}
	if n := len(check.Check(nil, snapshot(t, l, originalDst("static")), nil)); n == 0 || n > 150 {
		t.Errorf("%d findings", n)
	}
}

// thousand returns the config of a proxy with n services: a listener, a cluster, and endpoints for
// each.
func thousand(t testing.TB, n int) *envoy.Snapshot {
	var messages []proto.Message
	for i := range n {
		name := fmt.Sprintf("svc-%04d", i)
		l := secondListener("outbound:"+name, address("127.0.0.1", uint32(20000+i)))
		l.FilterChains[0].Filters[0] = filter("hcm", manager(host(name, name, "*")))
		c := &clusterv3.Cluster{Name: name, ConnectTimeout: durationpb.New(1e9),
			ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
			EdsClusterConfig:     &clusterv3.Cluster_EdsClusterConfig{EdsConfig: ads}}
		messages = append(messages, l, c, endpoints(name, fmt.Sprintf("10.0.%d.%d", i/250, i%250), 80))
	}
	return snapshot(t, messages...)
}

// TestManyServices checks that a valid config of 1,000 services has no findings, and that a removed
// cluster is found.
func TestManyServices(t *testing.T) {
	s := thousand(t, 1000)
	var c check.Checker
	if got := c.Check(nil, s, nil); len(got) != 0 {
		t.Fatalf("%d findings, the first %+v", len(got), got[0])
	}
	next := *s
	next[envoy.KindCluster] = slices.Delete(slices.Clone(s[envoy.KindCluster]), 500, 501)
	got := c.Check(s, &next, nil)
	if len(got) != 2 || got[0].Rule != 90 || got[0].Resource != "svc-0500" || got[1].Rule != 31 ||
		got[1].Resource != "outbound:svc-0500" {
		t.Errorf("one cluster less: %+v", got)
	}
}

func BenchmarkCheckCold(b *testing.B) {
	s := thousand(b, 1000)
	b.ReportAllocs()
	for b.Loop() {
		check.Check(nil, s, nil)
	}
}

func BenchmarkCheckOneChanged(b *testing.B) {
	s := thousand(b, 1000)
	var c check.Checker
	c.Check(nil, s, nil)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		next := *s
		next[envoy.KindListener] = slices.Clone(s[envoy.KindListener])
		changed := *s[envoy.KindListener][500]
		changed.Version = fmt.Sprint(i)
		next[envoy.KindListener][500] = &changed
		c.Check(s, &next, nil)
		s = &next
	}
}
