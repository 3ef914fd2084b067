package xds_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/nearside-mesh/nearside/agent/draft"
	"github.com/nearside-mesh/nearside/agent/node"
	"github.com/nearside-mesh/nearside/agent/xds"
)

// BenchmarkPublish changes one endpoint in a mesh of 1000 services and waits until the last of 50 delta clients has it.
func BenchmarkPublish(b *testing.B) {
	const services, proxies = 1000, 50
	base := &draft.Sealed{}
	names := make([]string, services)
	for i := range services {
		names[i] = fmt.Sprintf("service-%04d", i)
		for _, typeURL := range []string{cds, eds, lds} {
			rank := draft.Rank(typeURL)
			base.Resources[rank] = append(base.Resources[rank], resourceOf(rank, names[i], fmt.Sprintf("%s %0200d", names[i], i)))
		}
	}
	seal(base)
	changed := func(i int) *draft.Sealed {
		next := &draft.Sealed{Resources: base.Resources}
		rank := draft.Rank(eds)
		next.Resources[rank] = slices.Clone(base.Resources[rank])
		next.Resources[rank][services/2] = resourceOf(rank, names[services/2], fmt.Sprint("endpoint", i))
		return seal(next)
	}

	a := serving(b, base)
	clients := make([]*deltaClient, proxies)
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() {
			c := a.delta(fmt.Sprintf("default.p%d", i))
			for _, s := range []struct {
				typeURL string
				names   []string
			}{{cds, nil}, {eds, names}, {lds, nil}} {
				c.subscribe(s.typeURL, s.names...)
				c.ack(c.recv())
			}
			clients[i] = c
		})
	}
	wg.Wait()
	keys := a.Connected()
	n := 0
	for b.Loop() {
		n++
		b.StopTimer()
		cfg := changed(n)
		all := map[node.Key]xds.Config{}
		for _, key := range keys {
			all[key] = xds.Config{Sealed: cfg, Revision: uint64(n)}
		}
		b.StartTimer()
		for _, c := range clients {
			wg.Go(func() {
				resp := c.recv()
				if len(resp.GetResources()) != 1 {
					b.Errorf("%d resources for one change", len(resp.GetResources()))
				}
				c.ack(resp)
			})
		}
		a.Publish(all)
		wg.Wait()
	}
}
