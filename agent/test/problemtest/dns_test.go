package problemtest

import (
	"encoding/binary"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"sync"

	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// upstream is a name server that does not answer. Instead, a redirection may send each query back
// to the agent, from the agent's own address.
func (w *world) upstream(back bool) {
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	agenttest.Do(w.t, err)
	var raw net.PacketConn
	if back {
		if raw, err = net.ListenPacket("ip4:udp", "127.0.0.1"); err != nil {
			w.t.Skipf("no raw socket: %v", err)
		}
		w.t.Cleanup(func() { raw.Close() })
	}
	w.set = append(w.set, "dns.listen=127.0.0.1:0", "dns.upstreams="+c.LocalAddr().String())
	var reader sync.WaitGroup
	w.t.Cleanup(func() { c.Close(); reader.Wait() })
	w.started = func() {
		to, err := net.ResolveUDPAddr("udp", w.Addrs().DNS[0])
		agenttest.Do(w.t, err)
		reader.Go(func() {
			for b := make([]byte, 4096); ; {
				n, from, err := c.ReadFrom(b[8:])
				if errors.Is(err, net.ErrClosed) {
					return
				}
				if back { // with a UDP header without a checksum
					binary.BigEndian.PutUint16(b, uint16(from.(*net.UDPAddr).Port))
					binary.BigEndian.PutUint16(b[2:], uint16(to.Port))
					binary.BigEndian.PutUint16(b[4:], uint16(8+n))
					_, _ = raw.WriteTo(b[:8+n], &net.IPAddr{IP: to.IP})
				}
			}
		})
	}
}

// dnsFaults are faults of the resolver that only its metrics show.
var dnsFaults = []fault{
	{name: "queries that come back", file: "{type: Mesh, name: default}", before: func(w *world) { w.upstream(true) },
		after: func(w *world) { w.query() }, metric: "nearside_dns_loops_total", alerts: "NearsideDNSLoop"},
	{name: "too many queries for a silent upstream", file: "{type: Mesh, name: default}",
		before: func(w *world) { w.upstream(false) }, after: func(w *world) { w.queries(12000) },
		metric: "nearside_dns_forward_refused_total", alerts: "NearsideQueriesNotForwarded"},
	{name: "query log on a full disk", file: "{type: Mesh, name: default}",
		before: func(w *world) { w.tmpfs("logs", "size=256k,mode=0750") },
		set:    []string{"dns.listen=127.0.0.1:0", "dns.upstreams=127.0.0.1:1", "dns.queryLog.sample=1"},
		after: func(w *world) {
			full(w, filepath.Join(w.dir, "logs"))
			w.queries(20000)
		}, metric: "nearside_dns_query_log_records_dropped_total", alerts: "NearsideQueryLogDropped"},
}

// apiFaults are refused requests that only metrics show.
var apiFaults = []fault{
	{name: "wrong tokens", set: []string{"auditLog.profile=Default"}, after: func(w *world) {
		var all sync.WaitGroup
		defer all.Wait()
		for range 40 { // at once, because answers to wrong tokens are delayed
			all.Go(func() {
				for range 8 {
					_, _ = w.Request("GET", "http://nearside/v1/status", "", "Authorization: Bearer "+strings.Repeat("x", 40))
				}
			})
		}
	}, metric: "nearside_audit_events_dropped_total", alerts: "NearsideWrongTokens NearsideAuditEventsDropped"},
}
