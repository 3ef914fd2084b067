package mesh_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/virtualip"
)

// TestAddressesInStatus parses addresses in the status of services.
func TestAddressesInStatus(t *testing.T) {
	doc := meshDoc + dataplane("a", "10.0.0.1", "a", "")
	svc := func(name, labels, ips string) string {
		return service(name, labels, "dataplaneTags: {kuma.io/service: a}", "{port: 80, targetPort: 8080}") +
			"status: {vips: [" + ips + "]}\n"
	}
	for _, c := range []struct{ name, labels, ips, v4, v6, warning string }{
		{"v4", "", "{ip: 241.0.0.9}", "241.0.0.9", "", ""},
		{"v6", "", "{ip: 'fd00:fd01::9'}", "", "fd00:fd01::9", ""},
		{"both", "", "{ip: 'fd00:fd01::9'}, {ip: 241.0.0.9}", "241.0.0.9", "fd00:fd01::9", ""},
		{"mapped", "", "{ip: '::ffff:241.0.0.9'}", "241.0.0.9", "", ""},
		{"twice", "", "{ip: 241.0.0.9}, {ip: 241.0.0.9}", "241.0.0.9", "", ""},
		{"several", "", "{ip: 241.0.0.9}, {ip: 241.0.0.8}", "241.0.0.9", "", "241.0.0.9 is used, 241.0.0.8 is not"},
		{"of another kind", "", "{ip: 243.0.0.9}", "243.0.0.9", "", "is in the range of MeshMultiZoneService"},
		{"of tags", "", "{ip: 240.0.0.9}", "240.0.0.9", "", "is in the range of kuma.io/service"},
		{"outside", "", "{ip: 10.96.0.7}", "10.96.0.7", "", "outside the ranges"},
		{"of a cluster", "k8s.kuma.io/namespace: ns", "{ip: 10.96.0.7}", "10.96.0.7", "", ""},
		{"loopback", "", "{ip: 127.0.0.1}", "", "", "cannot be a virtual address"},
		{"multicast", "", "{ip: 'ff02::1'}", "", "", "cannot be a virtual address"},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := build(t, doc+svc("s", c.labels, c.ips))
			found := false
			for _, s := range v.Services() {
				if s.Resource.Name != "s" {
					continue
				}
				found = true
				if want := c.v4; want != "" && s.VIP.String() != want || want == "" && s.VIP.As4()[0] != 241 {
					t.Errorf("got %s, want %s", s.VIP, want)
				}
				if want := c.v6; want != "" && s.VIP6.String() != want ||
					want == "" && !strings.HasPrefix(s.VIP6.String(), "fd00:fd01:") {
					t.Errorf("got %s, want %s", s.VIP6, want)
				}
			}
			if !found {
				t.Error("the service is missing")
			}
			switch {
			case c.warning == "" && len(v.Warnings) > 0:
				t.Errorf("got %v, want no warning", v.Warnings)
			case c.warning != "" && (len(v.Warnings) != 1 || !strings.Contains(v.Warnings[0].Reason, c.warning)):
				t.Errorf("got %v, want one with %q", v.Warnings, c.warning)
			}
		})
	}
}

// TestStatusPins checks that a status takes an address from its current owner, and that the service
// keeps the address after the status is removed.
func TestStatusPins(t *testing.T) {
	decode := func(doc string) *resource.Set {
		rs, faults := kinds.Registry().Decode("test", []byte(doc))
		if len(faults) > 0 {
			t.Fatal(faults)
		}
		return resource.NewSet(rs)
	}
	svc := func(name, status string) string {
		return service(name, "", "dataplaneTags: {kuma.io/service: a}", "{port: 80, targetPort: 8080}") + status
	}
	pin := func(a string) string { return "status: {vips: [{ip: " + a + "}]}\n" }
	one := meshDoc + dataplane("a", "10.0.0.1", "a", "")
	n := &vipNode{now: time.Unix(1e9, 0)}
	before := addressesOf(t, n.view(t, decode(one+svc("a", "")+svc("b", ""))))
	v := n.view(t, decode(one+svc("a", "")+svc("b", pin(before["a"].v4))))
	pinned := addressesOf(t, v)
	if pinned["b"].v4 != before["a"].v4 || pinned["a"].v4 == before["a"].v4 {
		t.Errorf("got %v, want b at the address %s and a elsewhere", pinned, before["a"].v4)
	}
	if len(v.Warnings) != 1 || v.Warnings[0].Resource.Name != "a" {
		t.Errorf("got %v, want one warning about a, which moved", v.Warnings)
	}
	if after := addressesOf(t,
		n.view(t, decode(one+svc("a", "")+svc("b", "")))); cmp.Diff(after, pinned, cmp.AllowUnexported(vips{})) != "" {
		t.Errorf("without the status: %v, want nothing to move from %v", after, pinned)
	}
	// a sorts first, but b has the address.
	v = n.view(t, decode(one+svc("a", pin(pinned["b"].v4))+svc("b", pin(pinned["b"].v4))))
	if after := addressesOf(t, v); after["b"] != pinned["b"] || after["a"] != pinned["a"] || len(v.Warnings) != 1 ||
		v.Warnings[0].Resource.Name != "a" {
		t.Errorf("two of one address: %v with %v; want nothing to move from %v, and a warning about a",
			after, v.Warnings, pinned)
	}
}

// TestStatusOfAnotherKind gives a MeshService, by its status, the address that a tag service chose.
// The tag service gets another one, whether it had the address before or comes later.
func TestStatusOfAnotherKind(t *testing.T) {
	first := (&vipNode{}).see(t, []string{"web"})["web"].v4
	doc := meshDoc + dataplane("d", "10.0.0.1", "web", "") +
		service("pinned", "", "dataplaneTags: {kuma.io/service: web}", "{port: 80, targetPort: 8080}") +
		"status: {vips: [{ip: " + first + "}]}\n"
	rs, faults := kinds.Registry().Decode("test", []byte(doc))
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	for _, n := range []*vipNode{{}, {now: time.Unix(1e9, 0)}} {
		if !n.now.IsZero() {
			n.see(t, []string{"web"})
		}
		have := addressesOf(t, n.view(t, resource.NewSet(rs)))
		if have["pinned"].v4 != first || have["web"].v4 == first || !strings.HasPrefix(have["web"].v4, "240.") {
			t.Errorf("got %v, want pinned at %s and web elsewhere", have, first)
		}
	}
}

// TestHostileMemory passes manipulated known addresses: no address is shared or outside its range.
func TestHostileMemory(t *testing.T) {
	a := func(s string) netip.Addr { return netip.MustParseAddr(s) }
	n := &vipNode{known: virtualip.New([]virtualip.Entry{
		{Kind: "", Name: "a", V4: a("240.0.0.1"), V6: a("240.0.0.2")},
		{Kind: "", Name: "a", V4: a("240.0.0.3")},
		{Kind: "", Name: "b", V4: a("240.0.0.1"), V6: a("fd00:fd00::1%eth0")},
		{Kind: "", Name: "c", V4: a("10.0.0.1"), V6: a("::ffff:240.0.0.9")},
		{Kind: "Nonsense", Name: "d", V4: a("240.0.0.4")},
	})}
	have := n.see(t, []string{"a", "b", "c", "d"})
	if have["a"].v4 != "240.0.0.1" {
		t.Errorf("a has %s, want what the memory says", have["a"].v4)
	}
	for name, h := range have {
		if !strings.HasPrefix(h.v4, "240.") || !strings.HasPrefix(h.v6, "fd00:fd00::") &&
			!strings.HasPrefix(h.v6, "fd00:fd00:0:") {
			t.Errorf("%s has %v", name, h)
		}
	}
}
