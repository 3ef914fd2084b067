package ads_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
)

// warmingClient is a delta client that warms clusters as Envoy does: a new or changed cluster waits
// for its endpoints, and while a cluster waits, the client acknowledges no response with clusters.
// It retains its resources across reconnects.
type warmingClient struct {
	*deltaClient
	body     map[string]map[string]string // type, name, body
	versions map[string]map[string]string // type, name, version
	cold     map[string]bool              // clusters that wait for endpoints
	held     []*discoveryv3.DeltaDiscoveryRequest
}

func newWarmingClient() *warmingClient {
	m := &warmingClient{body: map[string]map[string]string{}, versions: map[string]map[string]string{}}
	for _, url := range []string{cds, eds, lds} {
		m.body[url], m.versions[url] = map[string]string{}, map[string]string{}
	}
	return m
}

// connect opens a stream and requests all types at once.
func (m *warmingClient) connect(a *agent) {
	m.deltaClient = deltaOn(a.t, a.dial(), &corev3.Node{Id: "default.web", UserAgentName: "envoy"})
	m.held, m.cold = nil, map[string]bool{}
	m.resume(cds, m.versions[cds])
	if names := keys(m.body[cds]); len(names) > 0 {
		m.resume(eds, m.versions[eds], names...)
		for _, name := range names {
			if _, ok := m.versions[eds][name]; !ok {
				m.cold[name] = true
			}
		}
	}
	m.resume(lds, m.versions[lds])
}

func keys(m map[string]string) (out []string) {
	for name := range m {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// step receives and handles one response.
func (m *warmingClient) step() {
	resp := m.recv()
	url := resp.GetTypeUrl()
	ask := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: eds}
	for _, r := range resp.GetResources() {
		_, had := m.body[url][r.GetName()]
		m.body[url][r.GetName()], m.versions[url][r.GetName()] = bodyOf(url, r.GetResource().GetValue()), r.GetVersion()
		switch url {
		case cds:
			m.cold[r.GetName()] = true
			if !had {
				ask.ResourceNamesSubscribe = append(ask.ResourceNamesSubscribe, r.GetName())
			}
		case eds:
			delete(m.cold, r.GetName())
		}
	}
	for _, name := range resp.GetRemovedResources() {
		if _, had := m.body[cds][name]; had && url == cds {
			ask.ResourceNamesUnsubscribe = append(ask.ResourceNamesUnsubscribe, name)
			delete(m.body[eds], name)
			delete(m.versions[eds], name)
		}
		delete(m.body[url], name)
		delete(m.versions[url], name)
		if url != lds {
			delete(m.cold, name)
		}
	}
	if len(ask.ResourceNamesSubscribe)+len(ask.ResourceNamesUnsubscribe) > 0 {
		m.send(ask)
	}
	ack := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: url, ResponseNonce: resp.GetNonce()}
	if url == cds {
		m.held = append(m.held, ack)
	} else {
		m.send(ack)
	}
	if len(m.cold) == 0 {
		for _, ack := range m.held {
			m.send(ack)
		}
		m.held = nil
	}
}

func (m *warmingClient) state() string {
	var words []string
	for url, list := range m.body {
		for name, body := range list {
			words = append(words, shortType(url)+":"+name+"="+body)
		}
	}
	slices.Sort(words)
	return strings.Join(words, " ")
}

// TestModelWarms pushes random configs to a client that warms its clusters and reconnects at
// random. It never waits for a resource that is not sent, and finally has the last config and no
// cold cluster.
func TestModelWarms(t *testing.T) {
	seeds := uint64(40)
	if testing.Short() {
		seeds = 10
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 3))
			words := randomConfig(rng, 0)
			a := serving(t, config(words...))
			m := newWarmingClient()
			m.connect(a)
			m.step() // wait until the server knows the client
			for i := range 30 {
				words = randomConfig(rng, i)
				if i == 29 {
					words = append(words, "LDS:last=last")
				}
				a.push(config(words...))
				if i > 0 && rng.IntN(6) == 0 {
					m.connect(a)
				}
				// The config differs from the client's, so a response follows.
				for range rng.IntN(3) {
					if want := slices.Sorted(slices.Values(words)); m.state() != strings.Join(want, " ") {
						m.step()
					}
				}
			}
			want := strings.Join(slices.Sorted(slices.Values(words)), " ")
			for m.state() != want || len(m.cold) > 0 {
				m.step()
			}
		})
	}
}
