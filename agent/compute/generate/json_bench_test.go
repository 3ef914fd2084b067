package generate_test

import (
	"slices"
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

func BenchmarkJSON(b *testing.B) {
	rs := slices.Concat(bigMesh(1000, 0), policies(b, 5))
	slices.SortFunc(rs, func(a, b *resource.Resource) int { return a.Key.Compare(b.Key) })
	p := proxyOf(b, meshOf(b, rs, nil), "web", nil, nil)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := p.JSON(); err != nil {
			b.Fatal(err)
		}
	}
}
