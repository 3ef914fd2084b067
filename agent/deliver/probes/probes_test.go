package probes_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/deliver/presence"
	"github.com/nearside-mesh/nearside/agent/deliver/probes"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// scene is a scheduler with simulated workloads.
type scene struct {
	*probes.Probes
	t     *testing.T
	store *store.Store
	reg   *prometheus.Registry

	mu        sync.Mutex
	fails     map[uint16]error          // by port of the workload
	takes     time.Duration             // of a probe
	absent    bool                      // no Envoy is connected
	reach     *resource.Reach           // annotations of the Envoy
	results   []string                  // states since the last call of got
	runs, now int                       // all and concurrent probes
	most      int                       // maximum of concurrent probes
	last      map[uint16]resource.Probe // by port of the workload
}

func newScene(t *testing.T, atOnce int, stored *store.Store) *scene {
	s := &scene{t: t, store: stored, fails: map[uint16]error{}, last: map[uint16]resource.Probe{},
		reg: prometheus.NewRegistry()}
	var err error
	s.Probes, err = probes.New(probes.Options{Store: s.store, AtOnce: atOnce, Registry: s.reg,
		Peer: func(k node.Key) (access.Peer, bool) {
			s.mu.Lock()
			defer s.mu.Unlock()
			return access.Peer{Local: true, PID: 1}, !s.absent && k == node.Key{ID: "default.a", Flavor: node.FlavorEnvoy}
		},
		Reach: func(string, string) *resource.Reach {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.reach
		},
		Result: func(dp resource.Key, port uint32, ok bool) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.results = append(s.results, fmt.Sprint(dp.Name, ":", port, " ", ok))
		},
		Run: func(ctx context.Context, _ access.Peer, p *resource.Probe) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.runs++
			s.now++
			s.most = max(s.most, s.now)
			s.last[p.Workload.Port()] = *p
			takes := s.takes
			s.mu.Unlock()
			if takes > 0 {
				select {
				case <-ctx.Done():
				case <-time.After(takes):
				}
			}
			s.mu.Lock()
			s.now--
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return s.fails[p.Workload.Port()]
		}})
	agenttest.Do(t, err)
	go s.Run(t.Context())
	return s
}

// put stores a Dataplane with inbounds.
func (s *scene) put(name, inbounds string) {
	s.t.Helper()
	text := fmt.Sprintf("{type: Dataplane, mesh: default, name: %s, networking: {address: 10.0.0.1, inbound: [%s]}}", name,
		inbounds)
	_, err := s.store.Apply(store.Batch{Source: store.Source{Kind: store.SourceFile},
		Ops: []store.Op{{Put: agenttest.Decoded(s.t, text)[0]}}})
	agenttest.Do(s.t, err)
}

func (s *scene) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// got lets time pass and returns the states since then, and how often workloads were probed.
func (s *scene) got(after time.Duration) string {
	synctest.Wait()
	<-time.After(after)
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.Sort(s.results)
	out := fmt.Sprint(s.results, " ", s.runs)
	s.results, s.runs = nil, 0
	return out
}

func inbound(port int, more string) string {
	return fmt.Sprintf("{port: %d, servicePort: %d, tags: {kuma.io/service: s}%s}", port, port+1000, more)
}

// TestThresholds checks intervals, thresholds, and that only changes are reported.
func TestThresholds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, 0, agenttest.Memory(t))
		const moment = 50 * time.Millisecond
		refuse := func() { s.set(func() { s.fails[1080] = errors.New("refused") }) }
		accept := func() { s.set(func() { delete(s.fails, 1080) }) }
		for _, step := range []struct {
			name  string
			do    func()
			after time.Duration
			want  string
		}{
			{"no probe", func() { s.put("a", inbound(80, "")) }, time.Minute, "[] 0"},
			{"the first result", func() {
				s.put("a", inbound(80, ", serviceProbe: {interval: 10s, unhealthyThreshold: 3, healthyThreshold: 2, tcp: {}}"))
			}, moment, "[] 1"},
			{"enough successes", func() {}, 10 * time.Second, "[a:80 true] 1"},
			{"two failures", refuse, 20 * time.Second, "[] 2"},
			{"the third", func() {}, 10 * time.Second, "[a:80 false] 1"},
			{"more", func() {}, 100 * time.Second, "[] 10"},
			{"one success", accept, 10 * time.Second, "[] 1"},
			{"a failure between", refuse, 10 * time.Second, "[] 1"},
			{"two successes", accept, 20 * time.Second, "[a:80 true] 2"},
			{"the Envoy is away", func() { s.set(func() { s.absent = true }); refuse() }, time.Minute, "[] 0"},
			{"it is back", func() { s.set(func() { s.absent = false }); s.Connected() }, 40 * time.Second, "[a:80 false] 5"},
			{"the namespace cannot be entered", func() {
				s.set(func() { s.fails[1080] = new(probes.NamespaceError) })
			}, 30 * time.Second, "[] 3"},
			{"an edit of other fields", func() {
				s.put("a", inbound(80, ", name: x, serviceProbe: {interval: 10s, unhealthyThreshold: 3, healthyThreshold: 2}"))
			}, 10 * time.Second, "[] 1"},
			{"an edited probe", func() {
				accept()
				s.put("a", inbound(80, ", serviceProbe: {}")+","+inbound(81, ", serviceProbe: {http: {path: /ready}}"))
			}, moment, "[a:80 true a:81 true] 2"},
			{"removed while it fails", refuse, time.Second, "[a:80 false] 2"},
			{"removed", func() { s.put("a", inbound(80, "")) }, moment, "[a:80 true a:81 true] 0"},
		} {
			synctest.Wait()
			step.do()
			if got := s.got(step.after); got != step.want {
				t.Fatalf("%s: %s, want %s", step.name, got, step.want)
			}
		}
		if p := s.last[1081]; p.Path != "/ready" || p.Timeout != 2*time.Second || p.Workload.String() != "10.0.0.1:1081" {
			t.Errorf("%+v", p)
		}
	})
}

// TestAnnotations checks the probes in the annotations of an Envoy.
func TestAnnotations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, 0, agenttest.Memory(t))
		s.put("a", inbound(80, "")+","+inbound(81, ""))
		if got := s.got(time.Second); got != "[] 0" {
			t.Fatal(got)
		}
		reach, faults := resource.ParseReach("annotations", map[string]string{resource.AnnotationHTTPProbes: "81/ready?a=b"})
		agenttest.Do(t, faults.Err())
		s.set(func() { s.reach = &reach })
		s.Annotated()
		if got := s.got(time.Millisecond); got != "[a:81 true] 1" || s.last[1081].Path != "/ready?a=b" {
			t.Error(got, s.last)
		}
	})
}

// TestAtOnce checks that slow workloads neither exceed the limit of concurrent probes nor remain
// unknown, and that late probes are counted.
func TestAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, 4, agenttest.Memory(t))
		s.set(func() { s.takes = time.Hour })
		var list []string
		for i := range 12 {
			list = append(list, inbound(80+i, ", serviceProbe: {timeout: 1s, interval: 60s}"))
		}
		s.put("a", strings.Join(list, ","))
		got := s.got(3500 * time.Millisecond)
		if strings.Count(got, "false") != 12 || !strings.HasSuffix(got, " 12") || s.most != 4 {
			t.Errorf("%s, %d at once", got, s.most)
		}
		families, err := s.reg.Gather()
		agenttest.Do(t, err)
		counts := map[string]float64{}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				name := f.GetName()
				for _, l := range m.GetLabel() {
					name += " " + l.GetValue()
				}
				counts[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
		if counts["nearside_probes_late_total"] != 8 || counts["nearside_probes_total failure"] != 12 ||
			counts["nearside_probed_inbounds failing"] != 12 {
			t.Error(counts)
		}
	})
}

// TestRemovedBeforeStart checks that a probe that failed before a restart, and that was removed
// meanwhile, no longer excludes its inbound.
func TestRemovedBeforeStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := agenttest.Memory(t)
		before := presence.New(presence.Options{Registry: kinds.Registry().WithInternal(), Store: st})
		go before.Run(t.Context())
		s := &scene{t: t, store: st}
		s.put("a", inbound(80, "")+","+inbound(81, ", serviceProbe: {}"))
		for _, port := range []uint32{80, 81} {
			before.Probe(resource.Key{Kind: "Dataplane", Mesh: "default", Name: "a"}, port, false)
		}
		synctest.Wait()
		s = newScene(t, 0, st)
		s.set(func() { s.absent = true })
		if got := s.got(time.Millisecond); !strings.HasPrefix(got, "[a:80 true") {
			t.Error(got)
		}
	})
}
