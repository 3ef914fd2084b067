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

// ResourceKey names a resource.
type ResourceKey = resource.Key

// SchemaVersion is the newest version of Kuma whose documents are known.
const SchemaVersion = resource.SchemaVersion

// DiffOptions says what is compared with a set, and for which proxies.
type DiffOptions struct {
	Put       *Offline      // what would be created or changed; nil: nothing
	Delete    []ResourceKey // what would be deleted
	Shadow    bool          // afterwards shadow policies act like the others
	Mesh      string        // only proxies of this mesh; "": all
	Dataplane string        // only the proxies of this name; "": all
	NoPatches bool          // the patches are left empty, which spares work

	Progress func(done, all int) // is called after each proxy; nil: nothing is
}

// Diff computes what would change on the proxies of a zone, as an agent with these resources would
// answer.
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
		return nil, errors.New(e.Error()) // there is no agent that could be asked for more
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
