package agent_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// TestBucketsAreRound checks that label values have no bounds like 0.00030000000000000003.
func TestBucketsAreRound(t *testing.T) {
	a := agenttest.Up(t, agenttest.ShortDir(t), agent.Deps{})
	families, err := a.Metrics().Gather()
	if err != nil {
		t.Fatal(err)
	}
	histograms := 0
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "nearside_") {
			continue
		}
		for _, m := range f.Metric {
			if m.Histogram == nil {
				continue
			}
			histograms++
			for _, b := range m.Histogram.Bucket {
				digits := strings.Trim(strings.ReplaceAll(strconv.FormatFloat(b.GetUpperBound(), 'f', -1, 64), ".", ""), "0")
				if len(digits) > 2 {
					t.Errorf("%s has the bucket %v", f.GetName(), b.GetUpperBound())
				}
			}
		}
	}
	if histograms < 3 {
		t.Errorf("only %d histograms", histograms)
	}
}

// TestConditions checks that metrics report file errors, problems, and the time of the last pass.
func TestConditions(t *testing.T) {
	dir := agenttest.ShortDir(t)
	agenttest.Do(t, os.Mkdir(filepath.Join(dir, "resources"), 0o755))
	agenttest.Do(t, os.WriteFile(filepath.Join(dir, "resources", "bad.yaml"), []byte("type: Mesh\n"), 0o600))
	r := agenttest.Up(t, dir, agent.Deps{})
	families, err := r.Metrics().Gather()
	agenttest.Do(t, err)
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			name := f.GetName()
			for _, l := range m.Label {
				name += "/" + l.GetValue()
			}
			got[name] = m.GetGauge().GetValue()
		}
	}
	if got["nearside_resource_file_faults"] != 1 || got["nearside_reconcile_last_timestamp_seconds"] == 0 {
		t.Errorf("%v faults, last pass at %v", got["nearside_resource_file_faults"],
			got["nearside_reconcile_last_timestamp_seconds"])
	}
	for _, severity := range []string{"error", "warning"} {
		if n, ok := got["nearside_problems/rejected/"+severity]; !ok || n != 0 {
			t.Errorf("%v problems of severity %s, %v", n, severity, ok)
		}
	}
}
