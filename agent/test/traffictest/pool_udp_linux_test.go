package traffictest_test

import (
	"testing"
	"time"
)

// TestPoolWithoutUDP checks that changes reach the Envoys of all machines while a firewall drops
// UDP between them.
func TestPoolWithoutUDP(t *testing.T) {
	t.Parallel()
	p := startPool(t, 3)
	for _, m := range p.all {
		m.ns.run(t, "table inet firewall { chain input { type filter hook input priority 0; meta l4proto udp drop; }\n}\n",
			"nft", "-f", "-")
	}
	p.say("UDP is dropped between three machines")
	for i, value := range []string{"1.111s", "2.222s", "3.333s"} {
		began := time.Now()
		p.all[i].apply(timeoutOf("all", value))
		for _, m := range p.all {
			m.config(value)
		}
		p.say("a policy of %s is in all Envoys after %d ms", p.all[i].name, time.Since(began).Milliseconds())
	}
}
