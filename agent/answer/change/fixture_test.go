package change_test

import (
	"context"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/answer/change"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/test/kindtest"
)

func newMesh(set *resource.Set, name string, prev *generate.Mesh) (*generate.Mesh, error) {
	return generate.NewMesh(set, name, mesh.Options{}, kinds.Plugins(), policy.Options{}, prev)
}

const services = kindtest.Services

func decode(tb testing.TB, docs string) []*resource.Resource {
	tb.Helper()
	return kindtest.Decode(tb, docs)
}

// slow returns MeshTimeout t1 for all services. edits are pairs of old and new text.
func slow(d string, edits ...string) string {
	return strings.NewReplacer(append(edits, "DURATION", d)...).Replace(
		"{type: MeshTimeout, mesh: default, name: t1, spec: {to: [{targetRef: {kind: Mesh}, " +
			"default: {connectionTimeout: DURATION}}]}}")
}

// diffFor returns the diff of a comparison.
func diffFor(ctx context.Context, q change.Question) (*api.Diff, error) {
	d, _, err := change.Compare(ctx, ctx, q)
	return d, err
}
