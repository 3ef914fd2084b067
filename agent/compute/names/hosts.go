package names

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/dns/table"
)

// host returns the reverse name.
func (p *pointer) host() table.Host {
	return table.Host{Name: table.ReverseName(p.addr), PTR: p.to.Name, Group: p.to.Group}
}

// Hosts returns all names that a resolver answers.
func (t *Table) Hosts() []table.Host {
	out := make([]table.Host, 0, len(t.Names)+len(t.reverse)+1)
	out = append(out, table.Host{Name: Canary, Addrs: []netip.Addr{CanaryAddr()}, Group: table.Everyone})
	for _, n := range t.Names {
		out = append(out, n.Host)
	}
	for i := range t.reverse {
		out = append(out, t.reverse[i].host())
	}
	return out
}

// OwnedSuffixes returns the names of the owned suffixes.
func (t *Table) OwnedSuffixes() []string {
	out := make([]string, len(t.Suffixes))
	for i := range t.Suffixes {
		out[i] = t.Suffixes[i].Name
	}
	return out
}

// Change is the difference between two tables of a resolver.
type Change struct {
	Whole  bool // rebuild everything
	Put    []table.Host
	Remove []string
}

// maxChange is the number of changed names from which everything is rebuilt.
const maxChange = 128

// Since returns the changes since another table, which may be nil.
func (t *Table) Since(prev *Table) Change {
	if prev == nil || prev.Pending || t.Pending || !slices.Equal(t.forwarded(), prev.forwarded()) ||
		!slices.EqualFunc(t.Suffixes, prev.Suffixes, func(a, b Suffix) bool { return a.Name == b.Name }) {
		return Change{Whole: true}
	}
	var c Change
	more := func() bool { return len(c.Put)+len(c.Remove) <= maxChange }
	differences(prev.Names, t.Names, func(a, b *Name) int { return strings.Compare(a.Name, b.Name) },
		func(a, b *Name) bool {
			return a == b || a.Group == b.Group && slices.Equal(a.Addrs, b.Addrs) && slices.Equal(a.Ports, b.Ports)
		},
		func(gone *Name) bool { c.Remove = append(c.Remove, gone.Name); return more() },
		func(now *Name) bool { c.Put = append(c.Put, now.Host); return more() })
	if more() {
		differences(prev.reverse, t.reverse, func(a, b pointer) int { return a.addr.Compare(b.addr) },
			func(a, b pointer) bool { return a.to == b.to || a.to.Group == b.to.Group && a.to.Name == b.to.Name },
			func(gone pointer) bool { c.Remove = append(c.Remove, table.ReverseName(gone.addr)); return more() },
			func(now pointer) bool { c.Put = append(c.Put, now.host()); return more() })
	}
	if !more() {
		return Change{Whole: true}
	}
	return c
}

// differences compares two sorted lists, and calls gone and put for each difference until one of
// them returns false.
func differences[T any](old, now []T, compare func(a, b T) int, same func(a, b T) bool, gone, put func(T) bool) {
	for i, j := 0, 0; i < len(old) || j < len(now); {
		order := 0
		switch {
		case i == len(old):
			order = 1
		case j == len(now):
			order = -1
		default:
			order = compare(old[i], now[j])
		}
		ok := true
		switch {
		case order < 0:
			ok = gone(old[i])
			i++
		case order > 0:
			ok = put(now[j])
			j++
		default:
			if !same(old[i], now[j]) {
				ok = put(now[j])
			}
			i, j = i+1, j+1
		}
		if !ok {
			return
		}
	}
}
