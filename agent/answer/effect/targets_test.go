package effect_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/answer/effect"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/test/kindtest"
)

// TestTargets checks the warnings about references that lead nowhere.
func TestTargets(t *testing.T) {
	kindtest.Each(t, filepath.Join("testdata", "targets"), "warnings.txt",
		func(t *testing.T, _ string, input []byte) string {
			rs := kindtest.InputOf(t, "input.yaml", input).Resources
			m, err := generate.NewMesh(resource.NewSet(rs), resource.DefaultMesh, mesh.Options{}, kinds.Plugins(),
				policy.Options{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			var b strings.Builder
			for _, r := range rs {
				for _, w := range effect.Targets(m, r) {
					fmt.Fprintf(&b, "%s: %s\n", w.Resource, w.Reason)
				}
			}
			return b.String()
		})
}
