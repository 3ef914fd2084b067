package agent_test

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/host/memory"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// TestMemoryIsShort simulates the memory of an agent. While memory is short, a new proxy must be
// refused with the limit and the remedy, status and metrics must report that, and connected proxies
// must still receive changes.
func TestMemoryIsShort(t *testing.T) {
	var percent atomic.Uint64
	percent.Store(50)
	r := agenttest.Up(t, agenttest.ShortDir(t), agent.Deps{Memory: func() memory.Use {
		return memory.Use{Limit: 200 << 20, Live: 2 << 20 * percent.Load(), Mapped: 200 << 20}
	}})
	apply := func(text string) {
		t.Helper()
		_, err := r.Api().Apply(t.Context(), []byte(text), false)
		agenttest.Do(t, err)
	}
	apply(agenttest.Meshes("default") + "\n---\n" + agenttest.DataplaneText("default", "web", "10.0.0.1") + "\n---\n" +
		agenttest.DataplaneText("default", "other", "10.0.0.2"))
	s, versions := r.Ask(&core.Node{Id: "default.web"}, nil), map[string]string{}
	agenttest.Next(t, s, versions)

	percent.Store(85)
	_, err := r.Ask(&core.Node{Id: "default.other"}, nil).Recv()
	for _, piece := range []string{"170 MiB of its limit of 200 MiB are in use", "MemoryMax="} {
		if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), piece) {
			t.Errorf("a proxy that comes is told %v, want %q", err, piece)
		}
	}
	var st *api.Status
	agenttest.Eventually(t, "the pass that has refused the proxy is over", func() bool {
		st, err = r.Api().Status(t.Context())
		agenttest.Do(t, err)
		return slices.ContainsFunc(st.Problems, func(p api.Problem) bool {
			return p.Resource == "Dataplane/default/other" && strings.Contains(p.Reason, "no memory")
		})
	})
	if m := st.Memory; m == nil || m.Limit != 200<<20 || m.InUse != 170<<20 || m.ShortSince.IsZero() || m.Refused != 1 ||
		m.Sheds == 0 || !st.Ready {
		t.Errorf("status: %+v, ready %t", m, st.Ready)
	}
	degraded := false
	for _, c := range st.Checks {
		degraded = degraded || c.Name == "memory" && c.Degraded && strings.Contains(c.Reason, "1 proxy is refused")
	}
	if !degraded {
		t.Errorf("checks %+v", st.Checks)
	}
	families, err := r.Metrics().Gather()
	agenttest.Do(t, err)
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			got[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	for name, want := range map[string]float64{
		"nearside_memory_refused_proxies":           1,
		"nearside_memory_limit_bytes":               200 << 20,
		"nearside_memory_in_use_bytes":              170 << 20,
		"nearside_xds_streams_refused_total memory": 1,
	} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}

	apply(agenttest.DataplaneText("default", "web", "10.0.0.9"))
	if got := agenttest.Next(t, s, versions); got == "" {
		t.Error("a proxy that is served gets no change")
	}
	percent.Store(60)
	agenttest.Next(t, r.Ask(&core.Node{Id: "default.other"}, nil), map[string]string{})
	agenttest.Do(t, r.Stop())
}
