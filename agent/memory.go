package agent

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nearside-mesh/nearside/agent/base/plural"
	"github.com/nearside-mesh/nearside/agent/host/memory"
	"github.com/nearside-mesh/nearside/agent/model/api"
)

// shed drops the agent's caches.
func (a *Agent) shed() {
	a.rollout.Shed()
	a.tags.Drop()
	a.resolver.Shed()
	if api := a.api.Load(); api != nil {
		api.Shed()
	}
}

func (a *Agent) memoryStatus() api.MemoryStatus {
	m := a.memory.State()
	out := api.MemoryStatus{Limit: m.Limit, InUse: m.Live, Resident: m.Mapped, Sheds: m.Sheds,
		Refused: a.reconciler.Refused()}
	if m.Short != nil {
		out.ShortSince = m.Short.Since
	}
	return out
}

func (a *Agent) memoryCheck() api.Check {
	m, c := a.memory.State(), api.Check{Name: "memory", OK: true}
	n := a.reconciler.Refused()
	switch {
	case m.Short != nil:
		c.Degraded, c.Reason = true, m.Short.Error()
	case m.TooSmall():
		c.Degraded = true
		c.Reason = fmt.Sprintf("the memory limit of %d MiB is below the smallest that works, %d MiB: the agent is slow or "+
			"stops; raise MemoryMax= of the unit or resources.limits.memory of the container", m.Group>>20, memory.Smallest>>20)
	case m.IsShort():
		c.Degraded = true
		c.Reason = fmt.Sprintf("%d MiB in use of %d MiB, so garbage collection is slow and new proxies are refused; raise "+
			"MemoryMax= of the unit, resources.limits.memory of the container, or GOMEMLIMIT", m.Live>>20, m.Limit>>20)
	case m.Limit == 0:
		c.Reason = fmt.Sprintf("%d MiB in use, without a limit", m.Live>>20)
	default:
		c.Reason = fmt.Sprintf("%d MiB in use of %d", m.Live>>20, m.Limit>>20)
	}
	if n > 0 {
		c.Degraded = true
		c.Reason = plural.Form(n, "1 proxy is refused: ", "%d proxies are refused: ") + c.Reason
	}
	return c
}

var (
	memoryLimitDesc = prometheus.NewDesc("nearside_memory_limit_bytes",
		"Memory limit of the agent; 0 without a limit.", nil, nil)
	memoryUseDesc = prometheus.NewDesc("nearside_memory_in_use_bytes",
		"Memory in use at the last garbage collection.", nil, nil)
	memoryShedDesc = prometheus.NewDesc("nearside_memory_sheds_total",
		"Number of times that the agent dropped its caches because memory was short.", nil, nil)
	memoryShortDesc = prometheus.NewDesc("nearside_memory_refused_proxies",
		"Proxies that are refused because memory is short, while they keep connecting.", nil, nil)
)

// memoryUse collects the memory use.
type memoryUse struct{ a *Agent }

func (m memoryUse) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{memoryLimitDesc, memoryUseDesc, memoryShedDesc, memoryShortDesc} {
		ch <- d
	}
}

func (m memoryUse) Collect(ch chan<- prometheus.Metric) {
	s := m.a.memory.State()
	ch <- prometheus.MustNewConstMetric(memoryLimitDesc, prometheus.GaugeValue, float64(s.Limit))
	ch <- prometheus.MustNewConstMetric(memoryUseDesc, prometheus.GaugeValue, float64(s.Live))
	ch <- prometheus.MustNewConstMetric(memoryShedDesc, prometheus.CounterValue, float64(s.Sheds))
	ch <- prometheus.MustNewConstMetric(memoryShortDesc, prometheus.GaugeValue, float64(m.a.reconciler.Refused()))
}
