package gossip

import (
	"fmt"

	"github.com/nearside-mesh/nearside/gossip/engine"
	"net/netip"
	"testing"
	"time"
)

const patience = 2 * time.Minute

var loopback = []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:0")}

// socketNode starts a node on real sockets. It joins seeds.
func socketNode(t *testing.T, i int, o Options, seeds ...running) running {
	t.Helper()
	o.Self, o.Name = simID(i), fmt.Sprint("node-", i)
	if o.Bind == nil {
		o.Bind = loopback
	}
	o.Seeds = func() (out []string) {
		for _, s := range seeds {
			out = append(out, s.Addr().String())
		}
		return out
	}
	return run(t, o)
}

// waitFor waits until holds returns true. It checks after each change of the node.
func waitFor(t *testing.T, n running, what string, holds func() bool) {
	t.Helper()
	w := n.Watch()
	defer w.Close()
	limit := time.After(patience)
	for !holds() {
		select {
		case <-w.C():
			w.Take()
		case <-time.After(20 * time.Millisecond): // changes of members are not reported
		case <-limit:
			t.Fatalf("%s: not within %v; members %v, figures %+v", what, patience, n.Members(), n.Stats())
		}
	}
}

func members(n running, want int) func() bool { return func() bool { return alive(n) == want } }

func body(n running, k engine.Key) string {
	if r := n.Record(k); r != nil && !r.Deleted {
		return string(r.Body)
	}
	return ""
}

var keyA, keyB = engine.Key{Kind: "K", Mesh: "m", Name: "a"}, engine.Key{Kind: "K", Mesh: "m", Name: "b"}
