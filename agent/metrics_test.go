package agent_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/agenttest"
)

// TestBucketsAreRound keeps bounds like 0.00030000000000000003 out of label values.
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
