package envoy_test

import (
	"fmt"
	"testing"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"github.com/nearside-mesh/nearside/agent/compute/check"
	"github.com/nearside-mesh/nearside/agent/compute/envoy"
	"github.com/nearside-mesh/nearside/agent/compute/match"
)

// manyChains returns a passthrough listener with n rules of all kinds.
func manyChains(n int) *listenerv3.Listener {
	var chains []*listenerv3.FilterChain
	for i := range n {
		words := []string{"tls svc-%d.example.com :443", "tcp 10.0.%d.1 :5432", "http 10.1.%d.1 :80",
			"tls 10.2.%d.0/24 :443"}[i%4]
		chains = append(chains, chain(fmt.Sprint("c", i), fmt.Sprintf(words, i/4)))
	}
	return passthrough(chains...)
}

func BenchmarkFind(b *testing.B) {
	l := match.NewListener(manyChains(200))
	conn := through("8.8.8.8:443", match.TLSHello, "svc-7.example.com")
	b.ReportAllocs()
	for b.Loop() {
		if m := l.Find(conn); m.Chain.GetName() != "c28" {
			b.Fatalf("%+v", m)
		}
	}
}

func BenchmarkExplain(b *testing.B) {
	s := thousand(b, 1000)
	r, err := envoy.NewResource(manyChains(200))
	if err != nil {
		b.Fatal(err)
	}
	s[envoy.KindListener] = append(s[envoy.KindListener], r)
	config := match.Open(s, nil)
	conn := through("8.8.8.8:443", match.TLSHello, "svc-7.example.com")
	b.ReportAllocs()
	for b.Loop() {
		if got := config.Connection(conn); chosen(got, match.LevelChain) != "c28" {
			b.Fatalf("%+v", got)
		}
	}
}

func BenchmarkNewListener(b *testing.B) {
	m := manyChains(200)
	b.ReportAllocs()
	for b.Loop() {
		match.NewListener(m)
	}
}

func BenchmarkCheckPassthrough(b *testing.B) {
	r, err := envoy.NewResource(manyChains(200))
	if err != nil {
		b.Fatal(err)
	}
	s := &envoy.Snapshot{}
	s[envoy.KindListener] = []*envoy.Resource{r}
	b.ReportAllocs()
	for b.Loop() {
		check.Check(nil, s, nil)
	}
}
