package changetest_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/test/agenttest"
	"github.com/nearside-mesh/nearside/agent/test/envoytest"
)

// reached returns how many connections to a cluster have reached their maximum duration.
func reached(p *envoytest.Process, cluster string) int {
	_, text := p.Admin("/stats?filter=^cluster." + cluster + ".upstream_cx_max_duration_reached")
	n, _ := strconv.Atoi(regexp.MustCompile(`\d+$`).FindString(strings.TrimSpace(text)))
	return n
}

// TestMaxConnectionDuration checks where maxConnectionDuration acts: on the connections of a proxy
// to other proxies. Open streams continue, and no request fails. It does not act on TCP, for which
// a patch limits the duration.
func TestMaxConnectionDuration(t *testing.T) {
	w := newWorld(t)
	agenttest.Apply(t, w.a, policy("MeshTimeout", "t", to("{http: {requestTimeout: 0s, maxConnectionDuration: 200ms}}")))
	w.applied("MeshTimeout", "t")
	x := w.start()
	x.await(t)
	agenttest.Eventually(t, "connections to other proxies have ended", func() bool {
		return reached(w.proxies[0], "backend") > 3 && reached(w.proxies[0], "calls") > 3
	})
	x.stop()
	x.report(t) // a stream that has ended is a failure

	agenttest.Apply(t, w.a, policy("MeshProxyPatch", "limit", "{targetRef: {kind: Mesh}, default: {appendModifications: ["+
		"{networkFilter: {operation: Patch, match: {name: envoy.filters.network.tcp_proxy, origin: inbound}, value: "+
		"\"name: envoy.filters.network.tcp_proxy\\ntypedConfig:\\n  '@type': type.googleapis.com/"+
		"envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy\\n  maxDownstreamConnectionDuration: 0.2s\"}}]}}"))
	w.applied("MeshProxyPatch", "limit")
	x = newTraffic(t, drainTime)
	messages := 0
	if err := x.lines(w.tcp, "", 1000, &messages); err == nil || messages == 0 {
		t.Error(fmt.Errorf("%d messages on a TCP connection with a limit: %w", messages, err))
	}
}
