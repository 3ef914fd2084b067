package offline

import (
	"context"
	"errors"

	"github.com/nearside-mesh/nearside/agent/answer/change"
	"github.com/nearside-mesh/nearside/agent/base/workers"
	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// DiffOptions describes a change of a set of resources and selects proxies.
type DiffOptions struct {
	Put       *Offline       // resources to create or change; nil: none
	Delete    []resource.Key // resources to delete
	Shadow    bool           // after the change, shadow policies are active
	Mesh      string         // only proxies of this mesh; "": all
	Dataplane string         // only the proxies of this name; "": all
	NoPatches bool           // omit the patches, which is faster

	Progress func(done, all int) // called after each proxy; may be nil
}

// Diff computes what a change would alter in the configs of a zone's proxies, as an agent with
// these resources would.
func (o *Offline) Diff(ctx context.Context, zone string, with DiffOptions) (*api.Diff, error) {
	q := change.Question{
		Set: o.set, Delete: with.Delete, Shadow: with.Shadow, Mesh: with.Mesh, Dataplane: with.Dataplane,
		NewMesh: o.newMesh(zone), Decode: kinds.Registry().DecodeOne,
		Each: workers.Each, Workers: workers.All(), NoPatches: with.NoPatches, Progress: with.Progress,
	}
	if with.Put != nil {
		q.Put = with.Put.list
	}
	d, v, err := change.Compare(ctx, ctx, q)
	if e := (*api.Error)(nil); errors.As(err, &e) {
		return nil, errors.New(e.Error()) // omit the details that only clients of an agent use
	}
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	d.Findings = v.Findings
	return d, nil
}
