package mesh_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/virtualip"
	"pgregory.net/rapid"
)

// vips holds the two addresses of a service.
type vips struct{ v4, v6 string }

// tagged returns a mesh with one dataplane for each tag service.
func tagged(names []string) *resource.Set {
	rs := []*resource.Resource{{Key: resource.Key{Kind: "Mesh", Name: "default"}, Spec: &resource.Mesh{}}}
	for i, n := range names {
		rs = append(rs, &resource.Resource{
			Key: resource.Key{Kind: "Dataplane", Mesh: "default", Name: n},
			Spec: &resource.Dataplane{
				Networking: resource.Networking{Address: fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255),
					Inbound: []resource.Inbound{{Port: 80, Tags: map[string]string{resource.TagService: n}}}}},
		})
	}
	return resource.NewSet(rs)
}

// vipNode simulates a node's known virtual addresses.
type vipNode struct {
	ranges virtualip.Ranges
	known  *virtualip.Set
	now    time.Time
}

const vipHold = time.Hour

func (n *vipNode) view(t require, set *resource.Set) *mesh.View {
	before := n.known.Entries()
	v, err := mesh.Build(set,
		"default", mesh.Options{VIPs: virtualip.Options{Ranges: n.ranges, Known: n.known, Now: n.now, Hold: vipHold}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, n.known.Entries(), cmp.Comparer(func(a, b netip.Addr) bool {
		return a == b
	})); diff != "" {
		t.Fatalf("building a view changed the memory that it was given: %s", diff)
	}
	n.known = v.VIPs()
	return v
}

type require interface {
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// see builds a view with the given tag services and returns their addresses. It fails if two
// services share an address.
func (n *vipNode) see(t require, names []string) map[string]vips {
	return addressesOf(t, n.view(t, tagged(names)))
}

func addressesOf(t require, v *mesh.View) map[string]vips {
	out := map[string]vips{}
	has := map[netip.Addr]string{}
	for _, s := range v.Services() {
		name := s.Resource.Name
		if s.ID.Kind == mesh.KindTag {
			name = s.Tag
		}
		out[name] = vips{s.VIP.String(), s.VIP6.String()}
		for _, a := range []netip.Addr{s.VIP, s.VIP6} {
			if by, ok := has[a]; ok && by != s.ID.Kind+name && a.IsValid() {
				t.Fatalf("%s is shared by %q and %q", a, by, s.ID.Kind+name)
			}
			has[a] = s.ID.Kind + name
		}
	}
	return out
}

// restart saves and restores the known addresses as a file would.
func (n *vipNode) restart() {
	list := n.known.Entries()
	slices.Reverse(list)
	n.known = virtualip.New(list)
}

// TestNodesAgreeOnAddresses shows two nodes services that come and go in different orders. With the
// default ranges, first choices do not collide. So each service has the same address on both nodes
// at any time, and its address never changes, even over a restart or after the reservation ended.
func TestNodesAgreeOnAddresses(t *testing.T) {
	universe := make([]string, 60)
	for i := range universe {
		universe[i] = fmt.Sprintf("service-%d", i)
	}
	first := map[string]vips{}
	for _, name := range universe {
		first[name] = (&vipNode{}).see(t, []string{name})[name]
	}
	rapid.Check(t, func(t *rapid.T) {
		end := rapid.SliceOfDistinct(rapid.SampledFrom(universe), rapid.ID).Draw(t, "end")
		for _, node := range []string{"a", "b"} {
			n := &vipNode{}
			for i, step := range rapid.SliceOfN(rapid.SliceOfDistinct(rapid.SampledFrom(universe), rapid.ID), 1, 6).Draw(t,
				node) {
				n.now = n.now.Add(time.Duration(i) * vipHold / 3)
				for name, have := range n.see(t, step) {
					if have != first[name] {
						t.Fatalf("node %s: %s has %v, want %v", node, name, have, first[name])
					}
				}
				n.restart()
			}
			for name, have := range n.see(t, end) {
				if have != first[name] {
					t.Fatalf("node %s: in the end %s has %v, want %v", node, name, have, first[name])
				}
			}
		}
	})
}

// TestAddressesInTinyRanges makes 14 services compete for 8 addresses, with restarts. An address
// does not change while its service exists, or if the service returns in time. No address is
// shared, not even with a service that may return. A new service gets its first choice unless that
// is taken, and a service has no address only if the range is full. A second node that sees the
// same services in another order assigns the same addresses.
func TestAddressesInTinyRanges(t *testing.T) {
	tiny := virtualip.Ranges{Tag: virtualip.Range{V4: netip.MustParsePrefix("240.1.2.8/29"),
		V6: netip.MustParsePrefix("fd00::40/125")}}
	universe := strings.Split("abcdefghijklmn", "")
	first := map[string]vips{}
	for _, name := range universe {
		first[name] = (&vipNode{ranges: tiny}).see(t, []string{name})[name]
	}
	rapid.Check(t, func(t *rapid.T) {
		n, other := &vipNode{ranges: tiny}, &vipNode{ranges: tiny}
		held := map[string]vips{}       // of services that exist or may return
		until := map[string]time.Time{} // for removed services
		steps := rapid.SliceOfN(rapid.SliceOfNDistinct(rapid.SampledFrom(universe), 0, 10, rapid.ID), 1, 12).Draw(t, "steps")
		for _, step := range steps {
			n.now = n.now.Add(time.Duration(rapid.IntRange(0, 70).Draw(t, "minutes")) * time.Minute)
			other.now = n.now
			for name, at := range until {
				if !at.After(n.now) && !slices.Contains(step, name) {
					delete(held, name)
					delete(until, name)
				}
			}
			have := n.see(t, step)
			slices.Reverse(step)
			if diff := cmp.Diff(have, other.see(t, step), cmp.AllowUnexported(vips{})); diff != "" {
				t.Fatalf("another node with the same memory differs: %s", diff)
			}
			slices.Sort(step)
			checkTiny(t, step, have, held, first)
			for name := range held {
				if !slices.Contains(step, name) && until[name].IsZero() {
					until[name] = n.now.Add(vipHold)
				}
			}
			for _, name := range step {
				held[name] = have[name]
				delete(until, name)
			}
			if rapid.Bool().Draw(t, "restart") {
				n.restart()
			}
		}
	})
}

const none = "invalid IP"

// checkTiny checks one step against the addresses before it.
func checkTiny(t *rapid.T, step []string, have, held, first map[string]vips) {
	for _, of := range []func(vips) string{func(a vips) string { return a.v4 }, func(a vips) string { return a.v6 }} {
		taken := map[string]string{}
		for name, a := range held {
			if of(a) != none {
				taken[of(a)] = name
			}
		}
		for _, name := range step { // new services choose in this order
			a := of(have[name])
			before, known := held[name]
			switch {
			case known && of(before) != none:
				if a != of(before) {
					t.Fatalf("%s moved from %s to %s", name, of(before), a)
				}
				continue
			case a == none:
				if len(taken) < 8 {
					t.Fatalf("%s has no address, and only %d are taken", name, len(taken))
				}
				continue
			}
			if by, ok := taken[a]; ok {
				t.Fatalf("%s got %s, which %s has or may come back to", name, a, by)
			}
			if by, ok := taken[of(first[name])]; !ok && a != of(first[name]) {
				t.Fatalf("%s got %s, and its first choice %s is free (%s)", name, a, of(first[name]), by)
			}
			taken[a] = name
		}
	}
}

// TestFullRange assigns the 256 addresses of a range to 300 services. It expects one warning, and
// an address for the waiting services when others become free.
func TestFullRange(t *testing.T) {
	n := &vipNode{ranges: virtualip.Ranges{Tag: virtualip.Range{V4: netip.MustParsePrefix("240.0.7.0/24")}},
		now: time.Unix(1e9, 0)}
	names := make([]string, 300)
	for i := range names {
		names[i] = fmt.Sprintf("s%03d", i)
	}
	v := n.view(t, tagged(names))
	have := addressesOf(t, v)
	for i, name := range names {
		if got := have[name].v4 != none; got != (i < 256) {
			t.Fatalf("%s has the address %s; the first 256 by name are to have one", name, have[name].v4)
		}
		if have[name].v6 == none {
			t.Fatalf("%s has no IPv6 address, and that range is not full", name)
		}
	}
	if len(v.Warnings) != 1 || v.Warnings[0].Resource.Kind != "Mesh" ||
		!strings.Contains(v.Warnings[0].Reason, "240.0.7.0/24 of virtual addresses is full: 44 services have no address") {
		t.Fatalf("got %v, want one warning about 44 services", v.Warnings)
	}
	if due := n.known.Due(); !due.IsZero() {
		t.Errorf("an address becomes free at %v; none waits to", due)
	}
	after := n.see(t, names[10:])
	if after["s299"].v4 != none {
		t.Errorf("s299 has %s, and the addresses of the ten that went are still theirs", after["s299"].v4)
	}
	if due := n.known.Due(); !due.Equal(n.now.Add(vipHold)) {
		t.Fatalf("the next pass is due at %v, want %v", due, n.now.Add(vipHold))
	}
	n.now = n.now.Add(vipHold)
	after = n.see(t, names[10:])
	for i := 256; i < 300; i++ {
		if got := after[names[i]].v4 != none; got != (i < 266) {
			t.Errorf("%s has %s; the ten addresses that became free go to the first ten", names[i], after[names[i]].v4)
		}
	}
}

// TestMemoryIsKept rebuilds a view: VIPs returns the same pointer, so that no caller saves it
// needlessly.
func TestMemoryIsKept(t *testing.T) {
	n := &vipNode{now: time.Unix(1e9, 0)}
	n.see(t, []string{"a", "b"})
	before := n.known
	n.now = n.now.Add(time.Minute)
	if n.see(t, []string{"b", "a"}); n.known != before {
		t.Error("nothing changed, and the memory is another")
	}
	if n.see(t, []string{"b"}); n.known == before || n.known.Len() != 2 {
		t.Errorf("a service went, and the memory has %d entries; want another with two", n.known.Len())
	}
	held := n.known.Entries()
	gone := n.known.Release(n.now, n.now.Add(time.Minute))
	if gone.Len() != 2 || gone.Release(n.now.Add(2*time.Hour), n.now) != nil {
		t.Errorf("the memory of a mesh that is gone has %d entries for a while, then none: %v", gone.Len(), gone.Entries())
	}
	if !slices.Equal(held, n.known.Entries()) {
		t.Errorf("releasing a memory changed it to %v, from %v", n.known.Entries(), held)
	}
}

func BenchmarkVIPs(b *testing.B) {
	names := make([]string, 20_000)
	for i := range names {
		names[i] = fmt.Sprintf("service-%d_%d_svc_80", i%700, i)
	}
	v, err := mesh.Build(tagged(names), "default", mesh.Options{}, nil)
	if err != nil {
		b.Fatal(err)
	}
	but1, err := mesh.Build(tagged(names[1:]), "default", mesh.Options{}, nil)
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		known *virtualip.Set
	}{{"20000", nil}, {"one-more", but1.VIPs()}, {"none", v.VIPs()}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				v.AssignVIPs(virtualip.Options{Known: c.known})
			}
		})
	}
}

// TestClockWasAhead removes a service while the clock is years ahead. After the clock is corrected,
// its addresses are reserved no longer than usual.
func TestClockWasAhead(t *testing.T) {
	for _, gone := range []bool{false, true} { // the service, or its mesh
		n := &vipNode{now: time.Unix(4e9, 0)}
		n.see(t, []string{"a", "b"})
		right := time.Unix(1.8e9, 0)
		if gone {
			n.known = n.known.Release(n.now, n.now.Add(vipHold))
			n.known = n.known.Release(right, right.Add(vipHold))
			if n.known = n.known.Release(right.Add(vipHold), right.Add(2*vipHold)); n.known != nil {
				t.Error("the addresses of the mesh wait for ever")
			}
			continue
		}
		n.see(t, []string{"a"})
		n.now = right
		if n.see(t, []string{"a"}); n.known.Len() != 2 {
			t.Fatal("b has nothing to come back to")
		}
		n.now = right.Add(vipHold)
		if n.see(t, []string{"a"}); n.known.Len() != 1 {
			t.Error("the address of b waits for ever")
		}
	}
}
