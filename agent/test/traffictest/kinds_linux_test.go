package traffictest_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// TestEveryKind checks that each policy kind occurs in some scene.
func TestEveryKind(t *testing.T) {
	var have []string
	rows := 0
	for _, s := range scenes("/tmp/access.log") {
		rows += len(s.rows)
		for doc := range strings.SplitSeq(s.docs, "---\n") {
			if strings.TrimSpace(doc) != "" {
				have = append(have, agenttest.Decoded(t, doc)[0].Key.Kind)
			}
		}
	}
	for _, d := range kinds.Policies() {
		if !slices.Contains(have, d.Kind) {
			t.Errorf("%s is in no scene", d.Kind)
		}
	}
	if rows < 120 {
		t.Errorf("%d connections and requests are too few", rows)
	}
}
