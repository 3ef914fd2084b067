package traffictest_test

import (
	"cmp"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/nearside-mesh/nearside/agent/answer/explain"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

var names = map[string][]string{
	"api.example.com": {"2001:db8:1::10", "198.51.100.10"},
	"www.example.com": {"198.51.100.30"}, "h2.example.com": {"198.51.100.31"}, "a.cdn.example.com": {"198.51.100.20"},
	"foreign.example.net": {"203.0.113.66"}, "shop.cdn.example.com": {"198.51.100.40"},
	"loop.cdn.example.com": {"127.0.0.1"}, "metadata.cdn.example.com": {"169.254.169.254"},
	"virtual.cdn.example.com": {"240.0.0.7"},
}

// addressesOf lists the distinct addresses of the servers outside the mesh.
func addressesOf(t testing.TB) []string {
	t.Helper()
	var out []string
	for _, s := range []string{apiService, apiV6, cdn, www, h2, partner, foreign, foreignV6, beside, database, outside,
		box, boxBeside, boxThird, boxV6, otherV6, mysql, mysqlNext, inner, outer, nowhere, nowhereV6} {
		host, _, err := net.SplitHostPort(s)
		agenttest.Do(t, err)
		if !slices.Contains(out, host) {
			out = append(out, host)
		}
	}
	return out
}

// address returns the address that the client of a row dials. It is invalid if the mesh has no
// address of that family for the name.
func (w *world) address(t testing.TB, r *row) netip.AddrPort {
	t.Helper()
	host, port, err := net.SplitHostPort(r.to)
	agenttest.Do(t, err)
	if r.ip != "" {
		host = r.ip
	}
	if _, err := netip.ParseAddr(host); err != nil {
		list := w.addressesOf(t, cmp.Or(r.mesh, "default"), host)
		i := slices.IndexFunc(list, func(a netip.Addr) bool { return a.Is6() == r.v6 })
		if i < 0 {
			return netip.AddrPort{}
		}
		host = list[i].String()
	}
	return mustAddrPort(net.JoinHostPort(host, port))
}

// addressesOf returns the virtual addresses of a name in the mesh.
func (w *world) addressesOf(t testing.TB, mesh, host string) []netip.Addr {
	t.Helper()
	if w.vips == nil {
		w.vips = map[string][]netip.Addr{}
		list, err := w.agent.Api().Services(t.Context(), "", "", "")
		agenttest.Do(t, err)
		for _, s := range list {
			w.vips[s.Mesh+" "+s.Name+".mesh"] = s.VIPs
			for _, h := range s.Hostnames {
				w.vips[s.Mesh+" "+h.Hostname] = s.VIPs
			}
		}
	}
	key := mesh + " " + host
	if _, known := w.vips[key]; !known { // names without a service, for example those of a VirtualOutbound
		f, err := w.agent.Api().ExplainConnection(t.Context(),
			explain.ConnectionQuestion{Target: explain.Target{Mesh: mesh, From: "web", To: host + ":1"}})
		agenttest.Do(t, err)
		w.vips[key] = nil
		if at, err := netip.ParseAddrPort(f.Address); err == nil {
			w.vips[key] = []netip.Addr{at.Addr()}
		}
	}
	return w.vips[key]
}
