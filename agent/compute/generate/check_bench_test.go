package generate_test

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/nearside-mesh/nearside/agent/compute/check"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// BenchmarkCheck measures checking the proxy of the reference mesh, with 1000 services and 20
// policies: with an empty checker, and with a checker that knows all resources except one listener
// of a new shape.
func BenchmarkCheck(b *testing.B) {
	rs := slices.Concat(bigMesh(1000, 0), policies(b, 5))
	slices.SortFunc(rs, func(a, b *resource.Resource) int { return a.Key.Compare(b.Key) })
	p := proxyOf(b, meshOf(b, rs, nil), "web", nil, nil)
	b.Run("cold", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if found := p.Check(&check.Checker{}, nil); len(found) > 0 {
				b.Fatal(found)
			}
		}
	})
	b.Run("one", func(b *testing.B) {
		var c check.Checker
		p.Check(&c, nil)
		next, accepted := *p, p.Sealed
		i := 0
		b.ReportAllocs()
		for b.Loop() {
			i++
			next.Sealed = withAnother(p.Sealed, uint64(i))
			if found := next.Check(&c, accepted); len(found) > 0 {
				b.Fatal(found)
			}
			accepted = next.Sealed
		}
	})
}

// withAnother returns a config in which the listener of svc-700 has a different buffer limit.
func withAnother(s *draft.Sealed, limit uint64) *draft.Sealed {
	out := *s
	rank := draft.Rank(draft.TypeListener)
	list := slices.Clone(s.Resources[rank])
	at := slices.IndexFunc(list, func(r *draft.Resource) bool { return strings.HasSuffix(r.Name, ":20700") })
	r := list[at]
	// per_connection_buffer_limit_bytes is field 5. If a field occurs twice, the last value counts.
	value := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), limit)
	list[at] = draft.NewResource(rank, r.Name,
		protowire.AppendBytes(protowire.AppendTag(slices.Clone(r.Body()), 5, protowire.BytesType), value))
	out.Resources[rank] = list
	return &out
}
