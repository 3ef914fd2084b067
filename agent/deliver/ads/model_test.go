package ads_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
)

// modelClient handles clusters, endpoints, and listeners as Envoy does. It checks that no listener
// ever refers to a cluster that the client does not have. The body of a listener is
// "<name>.<cluster>/<revision>".
type modelClient struct {
	rng   *rand.Rand
	has   map[string]map[string]string // type, name, body
	calm  bool                         // stop rejecting
	fault string
	// rejected holds the clusters that the client rejected when they arrived.
	rejected map[string]bool
}

func newModelClient(rng *rand.Rand) *modelClient {
	return &modelClient{rng: rng, rejected: map[string]bool{},
		has: map[string]map[string]string{cds: {}, eds: {}, lds: {}}}
}

// apply handles a response as Envoy does: a rejected resource keeps its previous form and is named
// in the returned message, and the others are applied.
func (m *modelClient) apply(typeURL string, set map[string]string, removed []string, whole bool) (reject string) {
	old := m.has[typeURL]
	if whole {
		m.has[typeURL] = map[string]string{}
	}
	for name, body := range set {
		if _, ok := m.has[cds][name]; typeURL == eds && !ok {
			continue // it was in transit when the cluster was removed, so no watch is left
		}
		if strings.HasSuffix(body, "bad") {
			m.fault = "it was sent " + body
		}
		if !m.calm && reject == "" && m.rng.IntN(8) == 0 {
			reject = name + ": no"
			if typeURL == cds {
				m.rejected[name] = true
			}
			if was, ok := old[name]; ok {
				m.has[typeURL][name] = was
			}
			continue
		}
		m.has[typeURL][name] = body
		if typeURL == cds {
			delete(m.rejected, name)
		}
	}
	for _, name := range removed {
		delete(m.has[typeURL], name)
	}
	if typeURL == cds {
		for name := range m.has[eds] {
			if _, ok := m.has[cds][name]; !ok {
				delete(m.has[eds], name)
			}
		}
	}
	for name, body := range m.has[lds] {
		_, cluster, _ := strings.Cut(body, ".")
		cluster, _, _ = strings.Cut(cluster, "/")
		if _, ok := m.has[cds][cluster]; !ok && m.fault == "" && !m.rejected[cluster] {
			m.fault = fmt.Sprintf("after %s %v -%v: listener %s refers to cluster %s, there are %v",
				shortType(typeURL), set, removed, name, cluster, m.has[cds])
		}
	}
	return reject
}

// state returns everything that the client has, in the words of config.
func (m *modelClient) state() string {
	var words []string
	for typeURL, list := range m.has {
		for name, body := range list {
			words = append(words, shortType(typeURL)+":"+name+"="+body)
		}
	}
	slices.Sort(words)
	return strings.Join(words, " ")
}

// randomConfig returns a config of some clusters with endpoints and some listeners that refer to
// them.
func randomConfig(rng *rand.Rand, revision int) []string {
	var words, clusters []string
	for _, c := range []string{"a", "b", "c", "d", "e"} {
		if rng.IntN(3) > 0 || len(clusters) == 0 {
			clusters = append(clusters, c)
			words = append(words, fmt.Sprintf("CDS:%s=%d", c, rng.IntN(2)), fmt.Sprintf("EDS:%s=%s.%d", c, c, rng.IntN(3)))
		}
	}
	for i := range rng.IntN(5) {
		words = append(words, fmt.Sprintf("LDS:l%d=l%d.%s/%d", i, i, clusters[rng.IntN(len(clusters))], revision))
	}
	return words
}

// pushUnfit publishes a config of which the check withholds some resources: random ones that
// contain the word in their bytes, and listeners that need a cluster which was never published.
func (a *agent) pushUnfit(rng *rand.Rand, words []string) {
	bad := map[string]bool{}
	for i, w := range words {
		if !strings.HasPrefix(w, "EDS") && rng.IntN(4) == 0 {
			words[i] += "bad"
			bad[words[i]] = true
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	var withheld []string
	missing := map[string]bool{}
	for _, w := range words {
		name, _, _ := strings.Cut(w, "=")
		_, cluster, _ := strings.Cut(w, ".")
		cluster, _, _ = strings.Cut(cluster, "/")
		switch {
		case bad[w]:
			withheld = append(withheld, name)
			if c, ok := strings.CutPrefix(name, "CDS:"); ok && draft.Find(a.latest.Resources[draft.RankCluster], c) == nil {
				missing[c] = true
			}
		case !strings.HasPrefix(w, "EDS") && missing[cluster]:
			withheld = append(withheld, name)
		}
	}
	a.latest, a.withheld = without(config(words...), a.latest, withheld)
	a.revision++
	a.give(web, a.latest)
}

// TestModel pushes random configs to a client that accepts or rejects them at random. For every
// interleaving, no listener is ever without its cluster, and finally the client has the last
// config. With the check, no resource that it withholds is sent.
func TestModel(t *testing.T) {
	seeds := uint64(25)
	if testing.Short() {
		seeds = 6
	}
	for _, kind := range []string{"delta", "sotw", "delta checked", "sotw checked"} {
		for seed := range seeds {
			t.Run(fmt.Sprintf("%s/%d", kind, seed), func(t *testing.T) {
				kind, checked := strings.CutSuffix(kind, " checked")
				rng := rand.New(rand.NewPCG(seed, 1))
				a := serving(t, nil)
				a.push(config(randomConfig(rng, 0)...))
				m := newModelClient(rand.New(rand.NewPCG(seed, 2)))
				final := append(randomConfig(rng, 99), "LDS:last=last.x/99", "CDS:x=99", "EDS:x=x.99")
				for i, w := range final { // change everything, so that everything rejected is sent again
					if !strings.HasPrefix(w, "LDS") {
						final[i] = w + "9"
					}
				}
				want := slices.Sorted(slices.Values(final))

				var step func() error
				if kind == "delta" {
					step = modelDelta(a, m)
				} else {
					step = modelSotw(a, m)
				}
				for i := range 60 {
					if i%2 == 1 && i < 40 {
						if words := randomConfig(rng, i); checked {
							a.pushUnfit(rng, words)
						} else {
							a.push(config(words...))
						}
					}
					if i == 40 {
						break
					}
					if rng.IntN(3) == 0 {
						continue // push more than once between two steps
					}
					// The server always answers an unrelated name, so there is a response to
					// receive.
					if err := step(); err != nil {
						t.Fatal(err)
					}
				}
				m.calm = true
				a.push(config(final...))
				for n := 0; m.state() != strings.Join(want, " "); n++ {
					if n > 200 {
						t.Fatalf("does not settle; has  %s\nwant %s\n%+v", m.state(), strings.Join(want, " "), a.status("default.web"))
					}
					if err := step(); err != nil {
						t.Fatalf("%v; has  %s\nwant %s", err, m.state(), strings.Join(want, " "))
					}
				}
				if m.fault != "" {
					t.Error(m.fault)
				}
			})
		}
	}
}

// modelDelta returns a function that receives and handles responses until the answer to a probe
// arrives.
func modelDelta(a *agent, m *modelClient) func() error {
	c := a.delta("default.web")
	c.subscribe(cds)
	c.subscribe(lds)
	subscribed := map[string]struct{}{}
	return func() error {
		c.subscribe(rds, "probe")
		for {
			resp, err := c.str.Recv()
			if err != nil {
				return err
			}
			if resp.GetTypeUrl() == rds {
				c.ack(resp)
				return nil
			}
			set := map[string]string{}
			for _, r := range resp.GetResources() {
				set[r.GetName()] = bodyOf(resp.GetTypeUrl(), r.GetResource().GetValue())
			}
			reject := m.apply(resp.GetTypeUrl(), set, resp.GetRemovedResources(), false)
			if reject != "" {
				c.nack(resp, reject)
			} else {
				c.ack(resp)
			}
			if resp.GetTypeUrl() != cds {
				continue
			}
			req := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: eds}
			for name := range m.has[cds] {
				if _, ok := subscribed[name]; !ok {
					req.ResourceNamesSubscribe = append(req.ResourceNamesSubscribe, name)
					subscribed[name] = struct{}{}
				}
			}
			for name := range subscribed {
				if _, ok := m.has[cds][name]; !ok {
					req.ResourceNamesUnsubscribe = append(req.ResourceNamesUnsubscribe, name)
					delete(subscribed, name)
				}
			}
			if len(req.ResourceNamesSubscribe)+len(req.ResourceNamesUnsubscribe) > 0 {
				c.send(req)
			}
		}
	}
}

// modelSotw is modelDelta for state-of-the-world clients.
func modelSotw(a *agent, m *modelClient) func() error {
	c := a.sotw(nodeOf("default.web"))
	c.ask(cds)
	c.ask(lds)
	probes := 0
	names := func(typeURL string) []string {
		if typeURL != eds {
			return nil
		}
		return append(slices.Sorted(maps.Keys(m.has[cds])), "never")
	}
	return func() error {
		probes++
		c.ask(rds, fmt.Sprint("probe", probes))
		for {
			resp, err := c.str.Recv()
			if err != nil {
				return err
			}
			url := resp.GetTypeUrl()
			c.nonce[url] = resp.GetNonce()
			if url == rds {
				c.version[url] = resp.GetVersionInfo()
				c.ask(rds, fmt.Sprint("probe", probes))
				return nil
			}
			set := map[string]string{}
			for _, r := range resp.GetResources() {
				name, body := nameAndBody(url, r.GetValue())
				set[name] = body
			}
			reject := m.apply(url, set, nil, url != eds)
			req := &discoveryv3.DiscoveryRequest{TypeUrl: url, ResponseNonce: resp.GetNonce(), ResourceNames: names(url)}
			if reject != "" {
				req.ErrorDetail = &rpcstatus.Status{Code: 3, Message: reject}
			} else {
				c.version[url] = resp.GetVersionInfo()
			}
			req.VersionInfo = c.version[url]
			c.send(req)
			if url == cds {
				c.ask(eds, names(eds)...)
			}
		}
	}
}
