package ads_test

import (
	"fmt"
	"maps"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
)

// wholeClient rejects a response as Envoy does for a duration out of range: the whole response,
// without naming a resource, if the body of any resource contains the word poison.
type wholeClient struct {
	t    *testing.T
	has  map[string]map[string]string // type, name, body
	sent map[string]int               // responses by type
	step func()                       // receives until the response to a probe
}

const outOfRange = "Invalid duration: Duration out-of-range: seconds: 9223372036\n"

// take applies a response and returns the rejection message, or "".
func (c *wholeClient) take(url string, set map[string]string, removed []string, whole bool) string {
	c.sent[url]++
	for _, body := range set {
		if strings.Contains(body, "poison") {
			return outOfRange
		}
	}
	if whole {
		c.has[url] = map[string]string{}
	}
	maps.Copy(c.has[url], set)
	for _, name := range removed {
		delete(c.has[url], name)
	}
	return ""
}

func (c *wholeClient) line(url string) string {
	var words []string
	for _, name := range slices.Sorted(maps.Keys(c.has[url])) {
		words = append(words, name+"="+c.has[url][name])
	}
	return strings.Join(words, " ")
}

// until receives responses until the condition holds.
func (c *wholeClient) until(what string, cond func() bool) {
	c.t.Helper()
	for i := 0; !cond(); i++ {
		if i > 300 {
			c.t.Fatalf("%s does not come true; has CDS %s LDS %s", what, c.line(cds), c.line(lds))
		}
		c.step()
	}
}

// rests receives until three consecutive probes bring no other response.
func (c *wholeClient) rests() {
	c.t.Helper()
	for quiet := 0; quiet < 3; {
		before := c.sent[cds] + c.sent[lds]
		c.step()
		if quiet++; c.sent[cds]+c.sent[lds] != before {
			quiet = 0
		}
	}
}

// newWholeClient opens a stream of a proxy. The proxy starts empty or, if has is set, reconnects
// with these resources.
func newWholeClient(t *testing.T, a *agent, kind string, has map[string]map[string]string) *wholeClient {
	t.Helper()
	out := &wholeClient{t: t, sent: map[string]int{}, has: map[string]map[string]string{cds: {}, lds: {}}}
	if kind == "delta" {
		c := a.delta("default.web")
		for _, url := range []string{cds, lds} {
			versions := map[string]string{}
			for name, body := range has[url] {
				out.has[url][name] = body
				versions[name] = resourceOf(draft.Rank(url), name, body).Version
			}
			c.resume(url, versions)
		}
		out.step = func() {
			c.subscribe(rds, "probe")
			for {
				resp := c.recv()
				if resp.GetTypeUrl() == rds {
					c.ack(resp)
					return
				}
				set := map[string]string{}
				for _, r := range resp.GetResources() {
					set[r.GetName()] = bodyOf(resp.GetTypeUrl(), r.GetResource().GetValue())
				}
				if reason := out.take(resp.GetTypeUrl(), set, resp.GetRemovedResources(), false); reason != "" {
					c.nack(resp, reason)
				} else {
					c.ack(resp)
				}
			}
		}
		return out
	}
	c := a.sotw(nodeOf("default.web"))
	c.ask(cds)
	c.ask(lds)
	probes := 0
	out.step = func() {
		probes++
		c.ask(rds, fmt.Sprint("probe", probes))
		for {
			resp, err := c.str.Recv()
			if err != nil {
				t.Fatal(err)
			}
			url := resp.GetTypeUrl()
			c.nonce[url] = resp.GetNonce()
			if url == rds {
				c.version[url] = resp.GetVersionInfo()
				c.ask(rds, fmt.Sprint("probe", probes))
				return
			}
			set := map[string]string{}
			for _, r := range resp.GetResources() {
				name, body := nameAndBody(url, r.GetValue())
				set[name] = body
			}
			req := &discoveryv3.DiscoveryRequest{TypeUrl: url, ResponseNonce: resp.GetNonce()}
			if reason := out.take(url, set, nil, true); reason != "" {
				req.ErrorDetail = &rpcstatus.Status{Code: 3, Message: reason}
			} else {
				c.version[url] = resp.GetVersionInfo()
			}
			req.VersionInfo = c.version[url]
			c.send(req)
		}
	}
	return out
}

var bothKinds = []string{"delta", "sotw"}

// TestOneBadPoisonsNothing checks an update that is rejected without a resource name. All good
// resources are delivered. The bad one keeps its previous form, and neither later updates nor a
// proxy that restarts receive it.
func TestOneBadPoisonsNothing(t *testing.T) {
	for _, kind := range bothKinds {
		t.Run(kind, func(t *testing.T) {
			a := serving(t, config("CDS:a=1", "CDS:b=1", "CDS:c=1", "LDS:l=l.a"))
			c := newWholeClient(t, a, kind, nil)
			c.until("the first config", func() bool { return c.line(cds) == "a=1 b=1 c=1" && c.line(lds) == "l=l.a" })
			a.push(config("CDS:a=2", "CDS:b=poison", "CDS:c=2", "LDS:l=l.a"))
			c.until("the good ones", func() bool { return c.line(cds) == "a=2 b=1 c=2" })
			c.rests()
			if held := typeStatus(t, a.status("default.web"), cds).Held; len(held) != 1 || held[0].Name != "b" ||
				held[0].AcceptedVersion == "" {
				t.Errorf("held: %+v", held)
			}
			p := a.reached("default.web", 1)
			if len(p.Rejected) != 1 || p.Rejected[0].Suspect || p.Rejected[0].ID.Name != "b" {
				t.Errorf("rejected: %+v", p.Rejected)
			}
			before := c.sent[cds]
			a.push(config("CDS:a=3", "CDS:b=poison", "CDS:c=2", "CDS:new=1", "LDS:l=l.a", "LDS:m=m.new"))
			c.until("a new service", func() bool { return c.line(cds) == "a=3 b=1 c=2 new=1" && c.line(lds) == "l=l.a m=m.new" })
			if n := c.sent[cds] - before; n != 1 {
				t.Errorf("%d responses for the next update, want 1", n)
			}
			d := newWholeClient(t, a, kind, nil)
			d.until("a fresh start", func() bool { return d.line(cds) == "a=3 b=1 c=2 new=1" && d.line(lds) == "l=l.a m=m.new" })
			if d.sent[cds] != 1 {
				t.Errorf("%d responses to a fresh client, want 1", d.sent[cds])
			}
			a.push(config("CDS:a=3", "CDS:b=2", "CDS:c=2", "CDS:new=1", "LDS:l=l.a", "LDS:m=m.new"))
			d.until("the repaired one", func() bool { return d.line(cds) == "a=3 b=2 c=2 new=1" })
		})
	}
}

// TestPoisonAfterRestart restarts agent and proxy, so no resource is known to be accepted.
func TestPoisonAfterRestart(t *testing.T) {
	for _, kind := range bothKinds {
		t.Run(kind, func(t *testing.T) {
			a := serving(t, config("CDS:a=1", "CDS:b=poison", "CDS:c=1", "CDS:d=1", "LDS:l=l.a", "LDS:m=m.b"))
			c := newWholeClient(t, a, kind, nil)
			c.until("the good ones", func() bool {
				return c.line(cds) == "a=1 c=1 d=1" && strings.HasPrefix(c.line(lds), "l=l.a")
			})
			c.rests()
			if n := c.sent[cds]; n > 6 {
				t.Errorf("%d responses", n)
			}
			if held := typeStatus(t, a.status("default.web"), cds).Held; len(held) != 1 || held[0].Name != "b" {
				t.Errorf("held: %+v", held)
			}
			a.push(config("CDS:a=1", "CDS:c=1", "CDS:d=1", "LDS:l=l.a"))
			c.until("without the bad one", func() bool { return c.line(lds) == "l=l.a" })
			c.rests()
			if len(typeStatus(t, a.status("default.web"), cds).Held) != 0 {
				t.Error("held although it is gone")
			}
		})
	}
}

// TestPoisonKeepsWhatIsThere connects a delta client to an agent without history. The client keeps
// its current version of a rejected resource until the config removes that resource.
func TestPoisonKeepsWhatIsThere(t *testing.T) {
	a := serving(t, config("CDS:a=1", "CDS:b=poison", "CDS:c=2"))
	c := newWholeClient(t, a, "delta", map[string]map[string]string{cds: {"a": "1", "b": "1", "c": "1"}})
	c.until("the good ones", func() bool { return c.line(cds) == "a=1 b=1 c=2" })
	c.rests()
	if c.line(cds) != "a=1 b=1 c=2" {
		t.Errorf("has %s", c.line(cds))
	}
	a.push(config("CDS:a=1", "CDS:c=2"))
	c.until("the removal", func() bool { return c.line(cds) == "a=1 c=2" })
}

// TestPoisonModel makes random resources bad. All good ones are delivered, all bad ones keep the
// last accepted form, and that takes O(k log n) responses.
func TestPoisonModel(t *testing.T) {
	seeds := uint64(30)
	if testing.Short() {
		seeds = 6
	}
	for _, kind := range bothKinds {
		for seed := range seeds {
			t.Run(fmt.Sprintf("%s/%d", kind, seed), func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 3))
				a := serving(t, config())
				c := newWholeClient(t, a, kind, nil)
				good := map[string]string{} // the expected state of the client
				last := map[string]string{}
				for round := range 6 {
					n := 1 + rng.IntN(60)
					next, bad, changed := map[string]string{}, 0, 0
					for i := range n {
						name := fmt.Sprintf("r%02d", i)
						body := last[name]
						if body == "" || rng.IntN(2) == 0 {
							if body = fmt.Sprint("v", round); rng.IntN(8) == 0 {
								body = fmt.Sprint("poison", round)
							}
						}
						if next[name] = body; body != last[name] {
							if changed++; strings.HasPrefix(body, "poison") {
								bad++
							}
						}
					}
					want := map[string]string{}
					var words []string
					for name, body := range next {
						words = append(words, "CDS:"+name+"="+body)
						if !strings.HasPrefix(body, "poison") {
							want[name] = body
						} else if form, ok := good[name]; ok {
							want[name] = form
						}
					}
					before := c.sent[cds]
					a.push(config(words...))
					wanted := (&wholeClient{has: map[string]map[string]string{cds: want}}).line(cds)
					c.until(fmt.Sprintf("round %d: %s", round, wanted), func() bool { return c.line(cds) == wanted })
					c.rests()
					// One for the update, one for removals, and one for each name that was rejected
					// before in other bytes.
					most := 2 + len(words) - len(want) + 8 + 2*bad*(1+bits.Len(uint(changed)))
					if sent := c.sent[cds] - before; sent > most {
						t.Errorf("round %d: %d responses for %d bad of %d, at most %d", round, sent, bad, changed, most)
					}
					held := 0
					for _, body := range next {
						if strings.HasPrefix(body, "poison") {
							held++
						}
					}
					if got := typeStatus(t, a.status("default.web"), cds).Held; len(got) != held {
						t.Errorf("round %d: %d are held, want %d", round, len(got), held)
					}
					if c.line(cds) != wanted {
						t.Errorf("round %d: has  %s\nwant %s", round, c.line(cds), wanted)
					}
					good, last = want, next
					if rng.IntN(3) == 0 { // the proxy restarts
						c = newWholeClient(t, a, kind, nil)
						c.until("a fresh start", func() bool { return c.line(cds) == wanted })
					}
				}
			})
		}
	}
}

// TestNamesInAQuote: an Envoy that quotes a resource of a response has applied nothing of the
// response, whatever names the quote contains. An Envoy that names resources outside of a quote has
// applied the others.
func TestNamesInAQuote(t *testing.T) {
	const quote = "name: \"a\"\nload_assignment {\n  cluster_name: \"b\"\n}\n" +
		": Proto constraint validation failed (ClusterValidationError.ConnectTimeout)"
	for url, typeURL := range map[string]string{"CDS": cds, "LDS": lds, "RDS": rds} {
		line := func(version int, names ...string) (out []string) {
			for _, name := range names {
				out = append(out, fmt.Sprintf("%s:%s=%d", url, name, version))
			}
			return out
		}
		all := []string{"a", "b", "c"}
		a := serving(t, config(line(1, all...)...))
		c := deltaOn(t, a.dial(), &corev3.Node{Id: "default.web", UserAgentName: "envoy"})
		c.subscribe(typeURL, map[string][]string{"RDS": all}[url]...)
		c.wantAck(url + " a=1 b=1 c=1")
		a.push(config(line(2, all...)...))
		c.nack(c.want(url+" a=2 b=2 c=2"), quote)
		c.nack(c.want(url+" a=2 b=2"), quote)
		c.nack(c.want(url+" a=2"), quote)
		c.wantAck(url + " b=2")
		c.wantAck(url + " c=2")
		c.subscribe(eds, "x")
		c.want("EDS -x") // the server has read the acknowledgement
		ts := typeStatus(t, a.status("default.web"), typeURL)
		if len(ts.Held) != 1 || ts.Held[0].Name != "a" {
			t.Errorf("%s: held are %+v, want a alone", url, ts.Held)
		}
	}
}
