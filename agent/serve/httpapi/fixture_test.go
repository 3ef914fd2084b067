package httpapi_test

import (
	"context"
	"testing"

	"github.com/nearside-mesh/nearside/agent/answer/change"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/test/kindtest"
)

const services = kindtest.Services

func decode(tb testing.TB, docs string) []*resource.Resource {
	tb.Helper()
	return kindtest.Decode(tb, docs)
}

// diffFor is the diff of a comparison.
func diffFor(ctx context.Context, q change.Question) (*api.Diff, error) {
	d, _, err := change.Compare(ctx, ctx, q)
	return d, err
}
