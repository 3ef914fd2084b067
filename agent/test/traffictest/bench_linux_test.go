package traffictest_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// BenchmarkTraffic measures the latency that the client and server proxies add to a request on a
// persistent connection, and how long a client waits for a server that speaks first. Each case runs
// with and without a proxy, so the difference excludes the machine's own latency.
func BenchmarkTraffic(b *testing.B) {
	w := newWorld(b)
	b.Run("request", func(b *testing.B) {
		r := row{to: "backend.mesh:80"}
		through := newKept(b, w.proxyOf(&r).ns, w.address(b, &r).String())
		direct := newKept(b, w.net.nodes[5], partner) // a node without redirection
		var with, without []time.Duration
		for b.Loop() {
			without = append(without, direct.get(b))
			with = append(with, through.get(b))
		}
		b.ReportMetric(millis(median(without)), "p50-direct-ms")
		b.ReportMetric(millis(median(with)), "p50-through-ms")
		b.ReportMetric(millis(median(with)-median(without)), "p50-added-ms")
	})
	banner := func(docs string, r row) func(*testing.B) {
		return func(b *testing.B) {
			w.apply(b, docs)
			silent := row{say: nothing}
			var elapsed, without, added []time.Duration
			if x := w.send(b, &r, w.address(b, &r)); x.got == noAnswer { // one failure is enough
				b.ReportMetric(millis(x.took), "worst-ms")
				return
			}
			for b.Loop() {
				d, x := silent.send(b, w, w.net.nodes[5], mustAddrPort(mysql)).took, w.send(b, &r, w.address(b, &r)).took
				elapsed, without, added = append(elapsed, x), append(without, d), append(added, x-d)
			}
			b.ReportMetric(millis(median(without)), "p50-direct-ms")
			b.ReportMetric(millis(slices.Max(without)), "worst-direct-ms")
			b.ReportMetric(millis(percentile(added, 99)), "p99-added-ms")
			b.ReportMetric(millis(percentile(elapsed, 99)), "p99-ms")
			b.ReportMetric(millis(median(elapsed)), "p50-ms")
			b.ReportMetric(millis(slices.Max(elapsed)), "worst-ms")
		}
	}
	b.Run("banner", banner("", row{to: "banner.mesh:80", say: nothing}))
	b.Run("inspected", banner(theMesh(lenient+", "+viaEgress), row{mesh: "plain", to: nodeV4(4) + ":3306", say: nothing}))
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func median(list []time.Duration) time.Duration { return percentile(list, 50) }

func percentile(list []time.Duration, n int) time.Duration {
	list = slices.Sorted(slices.Values(list))
	return list[len(list)*n/100]
}

// kept is a client with one persistent connection.
type kept struct{ client *http.Client }

func newKept(b *testing.B, ns *netns, at string) *kept {
	t := &http.Transport{DialContext: func(context.Context, string,
		string) (net.Conn, error) {
		return ns.dial(mustAddrPort(at))
	}}
	b.Cleanup(t.CloseIdleConnections)
	k := &kept{&http.Client{Transport: t, Timeout: agenttest.Patience}}
	for range 20 { // until all connections of the route are established
		k.get(b)
	}
	return k
}

func (k *kept) get(b *testing.B) time.Duration {
	began := time.Now()
	resp, err := k.client.Get("http://backend.mesh/")
	if err != nil {
		b.Fatal(err)
	}
	_, err = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	if err != nil || resp.StatusCode != http.StatusOK {
		b.Fatal(resp.Status, err)
	}
	return time.Since(began)
}
