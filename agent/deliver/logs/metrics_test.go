package logs_test

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nearside-mesh/nearside/accesslog"
	"github.com/nearside-mesh/nearside/agent/deliver/logs"
)

// TestCollector checks that sums by kind never decrease while streams come, go, and return with the
// same name.
func TestCollector(t *testing.T) {
	fifo := func(name string, in, delivered, dropped, inFlight uint64) logs.Stream {
		return logs.Stream{Kind: logs.KindFIFO, Name: name, Stats: accesslog.Stats{In: in, BytesIn: 10 * in,
			Written:  delivered,
			InFlight: inFlight, Dropped: map[accesslog.Cause]uint64{accesslog.CauseStopped: dropped}}}
	}
	var list []logs.Stream
	m := logs.NewCollector(logs.NewFiles(noPaths(), slog.New(slog.DiscardHandler)), func() []logs.Stream { return list })
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(m); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		name string
		list []logs.Stream
		want string // in, written, dropped, in flight
	}{
		{"two", []logs.Stream{fifo("a", 10, 7, 1, 2), fifo("b", 5, 5, 0, 0)}, "15 12 1 2"},
		{"one goes", []logs.Stream{fifo("a", 11, 10, 1, 0)}, "16 15 1 0"},
		{"another one with that name", []logs.Stream{fifo("a", 3, 3, 0, 0)}, "19 18 1 0"},
		{"none", nil, "19 18 1 0"},
		{"nothing twice", nil, "19 18 1 0"},
	} {
		list = step.list
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		values := map[string]float64{}
		for _, f := range families {
			for _, x := range f.GetMetric() {
				values[f.GetName()] += x.GetCounter().GetValue() + x.GetGauge().GetValue()
			}
		}
		got := fmt.Sprint(values["nearside_log_records_total"], values["nearside_log_records_written_total"],
			values["nearside_log_records_dropped_total"], values["nearside_log_records_in_flight"])
		if got != step.want {
			t.Errorf("%s: got %s, want %s", step.name, got, step.want)
		}
	}
}
