package mesh_test

import (
	"slices"
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/mesh"
)

func TestTLSRange(t *testing.T) {
	all := mesh.DefaultTLS()
	old, next := mesh.TLSRange{Min: 3, Max: 3}, mesh.TLSRange{Min: 4, Max: 4}
	none, aes := mesh.TLSRange{Min: 3, Max: 1}, mesh.TLSRange{Min: 3, Max: 3, Ciphers: []string{"b"}}
	both := mesh.TLSRange{Min: 3, Max: 3, Ciphers: []string{"c", "b"}}
	for _, c := range []struct {
		a, b, union mesh.TLSRange
		covers      bool // whether a covers b
	}{
		{old, next, all, false}, {all, old, all, true}, {all, all, all, true}, {none, next, next, false},
		{next, none, next, true}, {mesh.TLSRange{Min: 1, Max: 1}, next, mesh.TLSRange{Min: 1, Max: 4}, false},
		{aes, old, old, false}, {old, aes, old, true}, {both, aes, mesh.TLSRange{Min: 3, Max: 3, Ciphers: []string{"b", "c"}},
			true},
		{aes, both, mesh.TLSRange{Min: 3, Max: 3, Ciphers: []string{"b", "c"}}, false},
	} {
		got := c.a.Union(c.b)
		if got.Min != c.union.Min || got.Max != c.union.Max || !slices.Equal(got.Ciphers, c.union.Ciphers) {
			t.Errorf("%s and %s: %s, want %s", c.a, c.b, got, c.union)
		}
		if !got.Covers(c.a) || !got.Covers(c.b) {
			t.Errorf("%s does not cover %s and %s", got, c.a, c.b)
		}
		if c.a.Covers(c.b) != c.covers {
			t.Errorf("%s covers %s: want %v", c.a, c.b, c.covers)
		}
	}
}
