package reconcile_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/check"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/deliver/reconcile"
	"github.com/nearside-mesh/nearside/agent/model/finding"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// BenchmarkPassOfFifty measures passes over 50 proxies with 200 outbounds each, whose configs all
// change each time, with and without the check.
func BenchmarkPassOfFifty(b *testing.B) {
	for _, name := range []string{"checked", "unchecked"} {
		b.Run(name, func(b *testing.B) {
			var docs strings.Builder
			var ids []string
			docs.WriteString("{type: Mesh, name: default}\n")
			for i := range 50 {
				fmt.Fprintf(&docs, "---\ntype: Dataplane\nmesh: default\nname: web-%d\nnetworking:\n  address: 10.0.0.%d\n"+
					"  inbound: [{port: 80, tags: {kuma.io/service: web, kuma.io/protocol: http}}]\n  outbound:\n", i, i+1)
				for k := range 200 {
					fmt.Fprintf(&docs, "  - {port: %d, tags: {kuma.io/service: svc-%d}}\n", 20000+k, k)
				}
				ids = append(ids, fmt.Sprintf("default.web-%d", i))
			}
			s, err := store.Open(store.Options{})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			put := func(text string) {
				batch := store.Batch{Source: store.Source{Kind: store.SourceAPI}, Durable: true}
				for _, r := range agenttest.Decoded(b, text) {
					batch.Ops = append(batch.Ops, store.Op{Put: r})
				}
				if _, err := s.Apply(batch); err != nil {
					b.Fatal(err)
				}
			}
			put(docs.String())
			o := reconcile.Options{Store: s, Publisher: agenttest.NewPublisher(ids...)}
			if name == "unchecked" {
				o.Check = func(*generate.Proxy, *check.Checker, *draft.Sealed) []finding.Finding { return nil }
			}
			r := reconcile.New(o)
			r.Pass()
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				i++
				put(agenttest.Breaker(i))
				r.Pass()
			}
		})
	}
}
