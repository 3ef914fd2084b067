package agent_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// lastWord tracks whether clients have received the latest versions of changed resources. A version
// is identified by text in the resource.
type lastWord struct {
	mu      sync.Mutex
	wants   [][]byte       // expected texts, one per resource
	has     map[int][]bool // by client: whether it has the expected text of each resource
	updates map[int]int    // by client: number of responses
	met     chan struct{}  // capacity 1: signals that an expected text was received
}

func newLastWord(things int) *lastWord {
	return &lastWord{wants: make([][]byte, things), has: map[int][]bool{}, updates: map[int]int{},
		met: make(chan struct{}, 1)}
}

// expect sets the expected text of a resource and marks it as missing at all clients.
func (l *lastWord) expect(thing int, text []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wants[thing] = text
	for _, has := range l.has {
		has[thing] = false
	}
}

func (l *lastWord) note(k int, response []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.has[k] == nil {
		l.has[k] = make([]bool, len(l.wants))
	}
	l.updates[k]++
	for i, want := range l.wants {
		if want != nil && bytes.Contains(response, want) {
			l.has[k][i] = true
		}
	}
	select {
	case l.met <- struct{}{}:
	default:
	}
}

// await waits until n clients have the latest version of every resource. It returns the smallest
// and the largest number of responses to one client.
func (l *lastWord) await(t *testing.T, n int) (least, most int) {
	t.Helper()
	late := time.After(stormPatience)
	for {
		l.mu.Lock()
		whole := 0
		for _, has := range l.has {
			all := true
			for i, want := range l.wants {
				all = all && (want == nil || has[i])
			}
			if all {
				whole++
			}
		}
		l.mu.Unlock()
		if whole >= n {
			break
		}
		select {
		case <-l.met:
		case <-late:
			t.Fatalf("%d of %d proxies have the last state", whole, n)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if os.Getenv("STORM_COUNTS") != "" {
		t.Log(l.updates)
	}
	for _, n := range l.updates {
		if least == 0 || n < least {
			least = n
		}
		most = max(most, n)
	}
	return least, most
}

// deaf opens streams that subscribe to everything and never read.
func deaf(t *testing.T, a *stormAgent, from, to int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	for k := from; k < to; k++ {
		conn, err := grpc.NewClient("unix://"+a.socket("xds.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
		agenttest.Do(t, err)
		t.Cleanup(func() { conn.Close() })
		s, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
		agenttest.Do(t, err)
		for _, typeURL := range []string{draft.TypeCluster, draft.TypeListener} {
			agenttest.Do(t, s.Send(&discoveryv3.DeltaDiscoveryRequest{Node: &corev3.Node{Id: fmt.Sprintf("default.web-%d", k),
				UserAgentName: "envoy"}, TypeUrl: typeURL, ResourceNamesSubscribe: []string{"*"}}))
		}
	}
}

// TestStormOfChanges saves many files per second, changes endpoints continuously, and toggles a
// policy, while some clients do not read. The work must be bounded: changes that arrive faster than
// they are processed are batched. No proxy may starve, and all must end with the final state.
func TestStormOfChanges(t *testing.T) {
	services, proxies, files, changes, flaps := 20, 8, 20, 100, 4
	if os.Getenv("STORM") == "full" {
		services, proxies, files, changes, flaps = 1000, 50, 100, 10_000, 60
	}
	keepsResponses.Store(true)
	defer keepsResponses.Store(false)
	a := newStormAgent(t, services, proxies+5)
	a.start(nil)
	a.ask(http.MethodGet, "/readyz", "")
	c := newCrowdOfClients(t, a, services, proxies)
	var mu sync.Mutex
	words := map[string]*lastWord{}
	c.raw = func(k int, typeURL string, response []byte) {
		mu.Lock()
		l := words[typeURL]
		mu.Unlock()
		if l != nil {
			l.note(k, response)
		}
	}
	begin := func(typeURL string, things int) *lastWord {
		mu.Lock()
		defer mu.Unlock()
		words[typeURL] = newLastWord(things)
		return words[typeURL]
	}
	c.connect(0, proxies)
	deaf(t, a, proxies, proxies+5)
	c.await(proxies, stormPatience)
	var began time.Time
	var passes int
	var spent time.Duration
	mark := func() { began, passes, spent = time.Now(), a.passes(), a.cpu() }
	say := func(what string, l *lastWord) {
		t.Helper()
		changed := time.Since(began)
		least, most := l.await(t, proxies)
		all := time.Since(began)
		t.Logf("%s in %s: all have the last state %s later, after %d passes, %.1f s of processor time; "+
			"each has got %d to %d responses", what, changed.Round(time.Millisecond), (all - changed).Round(time.Millisecond),
			a.passes()-passes, (a.cpu() - spent).Seconds(), least, most)
		// The agent ends streams that do not read after a while, and no others.
		if n, lines := a.refused(); c.refusals.Load() > 0 ||
			n > a.metric(`nearside_xds_streams_refused_total{reason="stuck"}`) || n > 5 {
			t.Errorf("%d streams were ended by the agent, the last since %s\n%s", n, c.reason(), lines)
		}
	}

	mark()
	l := begin(draft.TypeEndpoint, files)
	save := func(name, text string) {
		agenttest.Do(t, os.WriteFile(filepath.Join(a.dir, "new"), []byte(text), 0o644),
			os.Rename(filepath.Join(a.dir, "new"), filepath.Join(a.dir, "resources", name)))
	}
	tick := time.NewTicker(time.Second / time.Duration(files))
	defer tick.Stop()
	for i := range files {
		address := fmt.Sprintf("10.101.0.%d", i+1)
		l.expect(i, []byte(address))
		save(fmt.Sprintf("saved-%d.yaml", i), endpoint(i, 2, address))
		<-tick.C
	}
	say(fmt.Sprintf("%d saved files", files), l)

	mark()
	const moved = 10 // services
	l = begin(draft.TypeEndpoint, moved)
	every := time.NewTicker(time.Minute / 10_000)
	defer every.Stop()
	for n := range changes {
		address := fmt.Sprintf("10.102.%d.%d", n/250, n%250+1)
		if n >= changes-moved {
			// The text includes the next field, because one address can be a prefix of another one.
			l.expect(n%moved, append([]byte(address), 0x18))
		}
		if n%100 == 99 && n < changes-moved { // some over the API, where each write waits for the check
			a.ask(http.MethodPost, "/v1/apply", endpoint(n%moved, 4, address))
		} else {
			save(fmt.Sprintf("moved-%d.yaml", n%moved), endpoint(n%moved, 3, address))
		}
		<-every.C
	}
	say(fmt.Sprintf("%d changes of endpoints", changes), l)

	mark()
	l = begin(draft.TypeCluster, 1)
	flap := time.NewTicker(500 * time.Millisecond)
	defer flap.Stop()
	for n := range flaps {
		seconds := n%3 + 101 // three values, in case versions are skipped
		if n == flaps-1 {
			seconds = 104
			l.expect(0, []byte{0x22, 0x02, 0x08, 104}) // connect_timeout
		}
		a.ask(http.MethodPost, "/v1/apply",
			fmt.Sprintf(`{"type":"MeshTimeout","mesh":"default","name":"flaps","spec":{"targetRef":{"kind":"Mesh"},"to":[{"targetRef":{"kind":"Mesh"},"default":{"connectionTimeout":"%ds"}}]}}`, seconds))
		<-flap.C
	}
	say(fmt.Sprintf("%d forms of a policy", flaps), l)
}

// passes returns the number of passes of the agent.
func (a *stormAgent) passes() int { return a.metric("nearside_reconcile_duration_seconds_count") }
