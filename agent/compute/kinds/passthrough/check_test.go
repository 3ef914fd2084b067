package passthrough_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nearside-mesh/nearside/agent/compute/check"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	engine "github.com/nearside-mesh/nearside/agent/compute/envoy"
	"github.com/nearside-mesh/nearside/agent/compute/match"
	"github.com/nearside-mesh/nearside/agent/model/finding"
)

// real is the same proxy for the packages match and check: match explains connections to users, and
// check decides whether a config may be sent.
type real struct {
	config *match.Config
	found  []finding.Finding
}

// generated is a generated config.
type generated interface {
	Snapshot() *engine.Snapshot
	Check(*check.Checker, *draft.Sealed) []finding.Finding
}

// newReal checks the config of a proxy. It fails the test if the config would be withheld.
func newReal(t testing.TB, p generated) *real {
	t.Helper()
	r := &real{config: match.Open(p.Snapshot(), nil), found: p.Check(&check.Checker{}, nil)}
	for _, f := range r.found {
		if f.Severity.Blocks() {
			t.Fatalf("the config would be withheld: %v", f)
		}
	}
	return r
}

// decide evaluates a connection with package match.
func (r *real) decide(c conn) verdict {
	first := map[string]match.FirstBytes{
		sendsTLS: match.TLSHello, sendsHTTP1: match.HTTP11, sendsHTTP2: match.H2C, sendsHTTP10: match.HTTP10,
		sendsBytes: match.PlainBytes, sendsNothing: match.ServerFirst,
	}[c.sends]
	entry := netip.MustParseAddrPort("127.0.0.1:15001")
	if c.to.Addr().Is6() {
		entry = netip.MustParseAddrPort("[::1]:15001")
	}
	dialed := &match.Conn{Dst: c.to, Src: netip.MustParseAddrPort("192.168.0.1:40000"), Entry: entry, First: first}
	var trace *match.Trace
	switch c.sends {
	case sendsHTTP1, sendsHTTP2, sendsHTTP10:
		trace = r.config.Request(dialed, &match.Request{Host: c.name})
	default:
		dialed.SNI = c.name
		trace = r.config.Connection(dialed)
	}
	v := verdict{}
	for _, s := range trace.Steps {
		if s.Level == match.LevelChain {
			if v.chain = s.Choice; strings.HasPrefix(v.chain, "#") {
				v.chain = "" // it has no name
			}
		}
	}
	switch trace.Outcome {
	case match.Forwarded:
		v.cluster = trace.Targets[0].Cluster
	case match.Answered, match.NoHost, match.Accepted:
		v.refused = true
	case match.Broken:
		v.closedAt = "filter"
	case match.TimedOut:
		v.closedAt = "listener-filters"
	case match.NoCluster:
		v.closedAt = "cluster"
	default:
		v.closedAt = map[match.Level]string{
			match.LevelDestinationPort: "destination-port", match.LevelDestinationIP: "destination-ip",
			match.LevelServerName:        "server-name",
			match.LevelTransportProtocol: "transport-protocol", match.LevelApplicationProtocol: "application-protocol",
		}[trace.At]
	}
	return v
}

// agree compares the result of package match for a connection with that of this test's engine.
func (e *envoy) agree(t interface {
	Helper()
	Fatalf(string, ...any)
}, c conn) verdict {
	t.Helper()
	v := e.decide(c)
	if d := cmp.Diff(v, e.real.decide(c), cmp.AllowUnexported(verdict{})); d != "" {
		t.Fatalf("%s: test engine (-) and package match (+):\n%s", c, d)
	}
	return v
}
