package pooltest_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// dataplanesText returns n Dataplanes with the names of pods.
func dataplanesText(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString("---\n" + agenttest.DataplaneText("default", fmt.Sprintf("backend-deployment-7d9fb8c6b5-%05d", i),
			fmt.Sprintf("10.1.%d.%d", i/250, i%250+1)) + "\n")
	}
	return b.String()
}

// TestManyDataplanes checks that another node has 5,000 Dataplanes of one node. It logs how long
// they take.
func TestManyDataplanes(t *testing.T) {
	t.Parallel()
	const n = 5000
	all := startPool(t, 2)
	a, b := all[0], all[1]
	a.apply(meshText)
	b.has("meshes", "default", "0")
	began := time.Now()
	a.apply(dataplanesText(n))
	acknowledged := time.Now()
	b.await("it has all Dataplanes", func() bool { return b.count("dataplanes") == n })
	t.Logf("%d Dataplanes: acknowledged after %s, on the other node %s later", n,
		acknowledged.Sub(began).Round(time.Millisecond), time.Since(acknowledged).Round(time.Millisecond))
	agree(all)
}

// count returns the number of resources of a kind in the mesh default.
func (m *member) count(kind string) int {
	text, err := m.api.Raw(m.t.Context(), "/meshes/default/"+kind, map[string][]string{"size": {"1"}})
	if err != nil {
		return -1
	}
	_, after, _ := strings.Cut(string(text), `"total":`)
	n := 0
	_, _ = fmt.Sscan(after, &n)
	return n
}
