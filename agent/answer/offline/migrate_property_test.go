package offline_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"github.com/nearside-mesh/nearside/agent/answer/offline"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// These tests migrate random legacy policies and compare the behavior of Envoy in three states:
// before, with the new policies live, and with the legacy policies deleted.

// rounds is the number of random migrations per kind.
const rounds = 8

// workloads returns a mesh of five services. Some dataplanes have tags, one has two inbounds, and
// one is a gateway.
func workloads(r *rand.Rand, mtls bool) []string {
	m := `{"type":"Mesh","name":"default"}`
	if mtls {
		m = `{"type":"Mesh","name":"default","mtls":{"enabledBackend":"ca","backends":[{"name":"ca","type":"builtin"}]}}`
	}
	out := []string{m}
	protocols := map[string]string{"web": "http", "api": "http2", "rpc": "grpc", "db": "tcp", "queue": "tcp"}
	var outbounds []string
	for i, s := range slices.Sorted(maps.Keys(protocols)) {
		outbounds = append(outbounds, fmt.Sprintf(`{"port":%d,"tags":{"kuma.io/service":%q}}`, 20000+i, s))
	}
	inbound := func(port int, s string) string {
		tags := map[string]string{"kuma.io/service": s, "kuma.io/protocol": protocols[s]}
		if s == "rpc" {
			tags["team"] = "b" // each value occurs, because a selector that matches any value expands to the existing ones
		} else if r.IntN(2) == 0 {
			tags["team"] = pick(r, "a", "b")
		}
		b, _ := json.Marshal(tags)
		return fmt.Sprintf(`{"port":%d,"tags":%s}`, port, b)
	}
	dataplane := func(i int, name, rest string) {
		out = append(out,
			fmt.Sprintf(`{"type":"Dataplane","name":%q,"networking":{"address":"10.0.0.%d",%s,"outbound":[%s]}}`,
				name, i+1, rest, strings.Join(outbounds, ",")))
	}
	for i, s := range slices.Sorted(maps.Keys(protocols)) {
		dataplane(i, s, `"inbound":[`+inbound(8080, s)+`]`)
	}
	dataplane(10, "web-2", `"inbound":[`+inbound(8080, "web")+`]`)
	dataplane(11, "both", `"inbound":[`+inbound(8080, "web")+`,`+inbound(8081, "db")+`]`)
	dataplane(12, "edge", `"gateway":{"type":"DELEGATED","tags":{"kuma.io/service":"edge","team":"a"}}`)
	return out
}

func pick[T any](r *rand.Rand, list ...T) T { return list[r.IntN(len(list))] }

// selectors returns a list of selectors with additional tags where these can match.
func selectors(r *rand.Rand, tags bool) string {
	var out []string
	for range 1 + r.IntN(2) {
		m := map[string]string{"kuma.io/service": pick(r, "*", "*", "web", "api", "rpc", "db", "queue")}
		if tags && r.IntN(3) == 0 {
			m["team"] = pick(r, "a", "b", "*")
		}
		b, _ := json.Marshal(map[string]any{"match": m})
		out = append(out, string(b))
	}
	return "[" + strings.Join(out, ",") + "]"
}

// legacy returns a policy. The order of names differs from the precedence.
func legacy(r *rand.Rand, i int, kind string, arrives bool, conf string) string {
	if conf != "" {
		conf = `,"conf":` + conf
	}
	return fmt.Sprintf(`{"type":%q,"name":"%c%d","sources":%s,"destinations":%s%s}`,
		kind, 'a'+rune(r.IntN(26)), i, selectors(r, true), selectors(r, arrives), conf)
}

// fields returns an object with a random subset of the fields.
func fields(r *rand.Rand, all ...string) string {
	var out []string
	for _, f := range all {
		if r.IntN(3) > 0 {
			out = append(out, f)
		}
	}
	if len(out) == 0 {
		out = all[:1]
	}
	return "{" + strings.Join(out, ",") + "}"
}

func span(r *rand.Rand, name string) string { return fmt.Sprintf(`%q:"%ds"`, name, 1+r.IntN(500)) }
func num(r *rand.Rand, name string) string  { return fmt.Sprintf(`%q:%d`, name, 1+r.IntN(90)) }

// steps are the meshes before a migration, with the new policies live, and without the legacy
// policies.
type steps [3]*generate.Mesh

func migrated(t *testing.T, docs []string, kind string) (steps, *offline.Migration) {
	t.Helper()
	o, faults := offline.Read([]offline.Text{{Name: "test", Data: []byte(strings.Join(docs, "\n---\n"))}})
	if len(faults) > 0 {
		t.Fatalf("%v\n%s", faults, strings.Join(docs, "\n"))
	}
	m, err := o.Migrate(offline.MigrateOptions{Mesh: "default", Kinds: []string{kind}})
	if err != nil {
		t.Fatal(err)
	}
	var now, added []*resource.Resource
	reg := kinds.Registry()
	for _, d := range docs {
		rs, _ := reg.Decode("", []byte(d))
		now = append(now, rs...)
	}
	for _, p := range m.Policies {
		rs, faults := reg.Decode("", p.Resource)
		if len(faults) > 0 {
			t.Fatal(faults)
		}
		added = append(added, rs...)
	}
	left := slices.DeleteFunc(slices.Clone(now), func(r *resource.Resource) bool { return r.Kind == kind })
	var out steps
	for i, set := range [][]*resource.Resource{now, slices.Concat(now, added), slices.Concat(left, added)} {
		if out[i], err = generate.NewMesh(resource.NewSet(set), "default", mesh.Options{}, kinds.Plugins(),
			policy.Options{Shadow: i > 0}, nil); err != nil {
			t.Fatal(err)
		}
	}
	return out, m
}

// property runs random migrations and compares the facts of each proxy.
func property(t *testing.T, kind string, mtls bool, make func(r *rand.Rand) []string,
	facts func(t *testing.T, p *generate.Proxy) map[string]string) {
	for seed := range uint64(rounds) {
		r := rand.New(rand.NewPCG(seed, 7))
		docs := append(workloads(r, mtls), make(r)...)
		s, m := migrated(t, docs, kind)
		for _, d := range s[0].View.Dataplanes() {
			var got [3]map[string]string
			for i := range s {
				p, err := generate.Generate(generate.Input{Mesh: s[i], Name: d.Name, Flavor: node.FlavorEnvoy, Inline: true}, nil,
					nil)
				if err != nil {
					t.Fatal(err)
				}
				got[i] = facts(t, p)
			}
			if len(got[0]) == 0 {
				t.Fatalf("nothing is compared on %s", d.Name)
			}
			for i, step := range []string{"live", "alone"} {
				for _, k := range slices.Sorted(maps.Keys(got[0])) {
					if got[0][k] != got[i+1][k] {
						t.Errorf("seed %d, %s, %s: %s is %s, want %s", seed, step, d.Name, k, got[i+1][k], got[0][k])
					}
				}
			}
		}
		for _, p := range m.Dataplanes {
			for _, c := range slices.Concat(p.Live, p.Deleted) {
				if len(c.Why) == 0 {
					t.Errorf("seed %d, %s: no reason for %s %s %s", seed, p.Name, c.Op, c.Name, c.Field)
				}
			}
		}
		if t.Failed() {
			var b strings.Builder
			for _, p := range m.Policies {
				fmt.Fprintf(&b, "%s from %v %q\n", p.Resource, p.From, p.Notes)
			}
			t.Fatalf("of\n%s\n%v\nbecame\n%s", strings.Join(docs, "\n"), m.Without, b.String())
		}
	}
}

func TestMigratedTimeouts(t *testing.T) {
	property(t, "Timeout", false, func(r *rand.Rand) []string {
		var out []string
		if r.IntN(2) == 0 {
			out = append(out, `{"type":"TrafficRoute","name":"all","sources":[{"match":{"kuma.io/service":"*"}}],"destinations":[{"match":{"kuma.io/service":"*"}}],"conf":{"destination":{"kuma.io/service":"*"}}}`)
		}
		for i := range 1 + r.IntN(5) {
			out = append(out,
				legacy(r, i, "Timeout", false, fields(r, span(r, "connectTimeout"), `"tcp":{`+span(r, "idleTimeout")+`}`,
					`"http":`+fields(r, span(r, "requestTimeout"), span(r, "idleTimeout"), span(r, "streamIdleTimeout"),
						pick(r, span(r, "maxStreamDuration"), `"maxStreamDuration":"0s"`)),
					`"grpc":`+fields(r, span(r, "streamIdleTimeout"), span(r, "maxStreamDuration")))))
		}
		return out
	}, timeoutFacts)
}

// timeoutFacts returns the effective timeouts: idle timeouts of connections from the cluster, and
// of streams from the route or the listener.
func timeoutFacts(t *testing.T, p *generate.Proxy) map[string]string {
	out := map[string]string{}
	say := func(key string, d *durationpb.Duration, otherwise time.Duration) {
		v := otherwise
		if d != nil {
			v = d.AsDuration()
		}
		out[key] = v.String()
	}
	for _, c := range clustersOf(t, p) {
		say(c.Name+" connect", c.ConnectTimeout, 5*time.Second)
		o := &httpv3.HttpProtocolOptions{}
		if a := c.TypedExtensionProtocolOptions[draft.NameHTTPOptions]; a != nil {
			unpack(t, a, o)
		}
		say(c.Name+" idle", o.GetCommonHttpProtocolOptions().GetIdleTimeout(), time.Hour)
		say(c.Name+" max stream", o.GetCommonHttpProtocolOptions().GetMaxStreamDuration(), 0)
		say(c.Name+" max connection", o.GetCommonHttpProtocolOptions().GetMaxConnectionDuration(), 0)
	}
	for _, l := range listenersOf(t, p) {
		for _, f := range l.FilterChains[0].Filters {
			switch m := anyOf(t, f.GetTypedConfig()).(type) {
			case *tcpv3.TcpProxy:
				say(l.Name+" idle", m.IdleTimeout, time.Hour)
			case *hcmv3.HttpConnectionManager:
				say(l.Name+" headers", m.RequestHeadersTimeout, 0)
				for _, r := range m.GetRouteConfig().VirtualHosts[0].Routes {
					stream := r.GetRoute().IdleTimeout
					if stream == nil {
						stream = m.StreamIdleTimeout
					}
					say(l.Name+" stream idle", stream, 5*time.Minute)
					say(l.Name+" request", r.GetRoute().Timeout, 15*time.Second)
				}
			}
		}
	}
	return out
}

func TestMigratedCircuitBreakers(t *testing.T) {
	property(t, "CircuitBreaker", false, func(r *rand.Rand) []string {
		var out []string
		for i := range 1 + r.IntN(5) {
			deviation := `"standardDeviation":` +
				fields(r, num(r, "requestVolume"), num(r, "minimumHosts"), `"factor":1.`+fmt.Sprint(r.IntN(9)))
			detectors := fields(r,
				pick(r, `"totalErrors":{}`, `"totalErrors":{`+num(r, "consecutive")+`}`, `"totalErrors":{"consecutive":0}`),
				`"gatewayErrors":{`+num(r, "consecutive")+`}`, `"localErrors":{`+num(r, "consecutive")+`}`, deviation,
				`"failure":`+fields(r, num(r, "requestVolume"), num(r, "minimumHosts"), num(r, "threshold")))
			limits := fields(r, num(r, "maxConnections"), num(r, "maxPendingRequests"), num(r, "maxRequests"),
				num(r, "maxRetries"))
			parts := []string{span(r, "interval"), span(r, "baseEjectionTime"), num(r, "maxEjectionPercent")}
			halves := []string{`"detectors":` + detectors, `"thresholds":` + limits}
			// Without a deviation detector, splitting errors cannot be expressed by a policy.
			if strings.Contains(detectors, "standardDeviation") {
				parts = append(parts, `"splitExternalAndLocalErrors":true`)
				halves = append(halves[:1], pick(r, halves[1:], nil)...)
			} else {
				halves = pick(r, halves, halves[:1], halves[1:])
			}
			body := fields(r, parts...)
			out = append(out, legacy(r, i, "CircuitBreaker", false, body[:len(body)-1]+","+strings.Join(halves, ",")+"}"))
		}
		return out
	}, breakerFacts)
}

// breakerFacts returns the effective limits and detectors, including defaults.
func breakerFacts(t *testing.T, p *generate.Proxy) map[string]string {
	out := map[string]string{}
	for _, c := range clustersOf(t, p) {
		say := func(what string, v *wrapperspb.UInt32Value, otherwise uint32) {
			n := otherwise
			if v != nil {
				n = v.Value
			}
			out[c.Name+" "+what] = fmt.Sprint(n)
		}
		limits := &clusterv3.CircuitBreakers_Thresholds{}
		if l := c.GetCircuitBreakers().GetThresholds(); len(l) > 0 {
			limits = l[0]
		}
		say("connections", limits.MaxConnections, 1024)
		say("pending", limits.MaxPendingRequests, 1024)
		say("requests", limits.MaxRequests, 1024)
		say("retries", limits.MaxRetries, 3)
		o := c.OutlierDetection
		detects := false
		// detector records the numbers of an active detector. A detector that can never eject a
		// host counts as inactive.
		detector := func(what string, on *wrapperspb.UInt32Value, byDefault bool, numbers func()) {
			active := o != nil && (on == nil && byDefault || on.GetValue() > 0)
			if active {
				numbers()
				for k, v := range out {
					if strings.HasPrefix(k, c.Name+" "+what) && (v == "4294967295" || v == "0") {
						active = false
					}
				}
			}
			if !active {
				maps.DeleteFunc(out, func(k, _ string) bool { return strings.HasPrefix(k, c.Name+" "+what) })
			}
			out[c.Name+" "+what] = fmt.Sprint(active)
			detects = detects || active
		}
		detector("5xx", o.GetEnforcingConsecutive_5Xx(), true, func() { say("5xx n", o.Consecutive_5Xx, 5) })
		detector("gateway", o.GetEnforcingConsecutiveGatewayFailure(), false, func() {
			say("gateway n", o.ConsecutiveGatewayFailure, 5)
		})
		detector("local", o.GetEnforcingConsecutiveLocalOriginFailure(), true, func() {
			say("local n", o.ConsecutiveLocalOriginFailure, 5)
		})
		detector("success", o.GetEnforcingSuccessRate(), true, func() {
			say("success hosts", o.SuccessRateMinimumHosts, 5)
			say("success volume", o.SuccessRateRequestVolume, 100)
			say("success factor", o.SuccessRateStdevFactor, 1900)
		})
		detector("failure", o.GetEnforcingFailurePercentage(), false, func() {
			say("failure hosts", o.FailurePercentageMinimumHosts, 5)
			say("failure volume", o.FailurePercentageRequestVolume, 50)
			say("failure threshold", o.FailurePercentageThreshold, 85)
		})
		if !detects {
			continue // the other settings have no effect
		}
		say("percent", o.MaxEjectionPercent, 10)
		out[c.Name+" split"] = fmt.Sprint(o.SplitExternalLocalOriginErrors)
		for what, d := range map[string]*durationpb.Duration{"interval": o.Interval, "base": o.BaseEjectionTime} {
			v := map[string]time.Duration{"interval": 10 * time.Second, "base": 30 * time.Second}[what]
			if d != nil {
				v = d.AsDuration()
			}
			out[c.Name+" "+what] = v.String()
		}
	}
	return out
}
