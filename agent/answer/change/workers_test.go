package change_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/nearside-mesh/nearside/agent/answer/change"
	"github.com/nearside-mesh/nearside/agent/base/workers"
	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/test/kindtest"
)

// TestWorkersChangeNothing checks that any number of workers produces the same bytes, for policies
// of several kinds with causes, findings, added and removed proxies, and exceeded limits.
func TestWorkersChangeNothing(t *testing.T) {
	set := wide(t, 2, 16)
	gone := resource.Key{Kind: "Dataplane", Mesh: "default", Name: "web-3"}
	put := append(everywhere(t, 5),
		decode(t, onAll("bad")+"\n---\n"+kindtest.Breaking("worse", "{kind: MeshSubset, tags: {kuma.io/service: web-7}}")+
			"\n---\n{type: Dataplane, mesh: default, name: web-new, networking: {address: 10.9.1.1, inbound: [{port: 8080, "+
			"tags: {kuma.io/service: web-0, kuma.io/protocol: http}}]}}")...)
	for _, bounds := range []change.Question{
		{}, {NoPatches: true}, {MaxTold: 300, MaxTried: 100, MaxTrials: 3, MaxFindings: 1},
	} {
		want := ""
		for _, n := range []int{0, 3} {
			q := bounds
			q.Set, q.Put, q.Delete, q.NewMesh, q.Decode = set, put, []resource.Key{gone}, newMesh, kinds.Registry().DecodeOne
			q.Workers, q.Each = n, workers.Each
			last := 0
			q.Progress = func(done, all int) {
				if last++; done != last || all != 19 {
					t.Errorf("progress %d of %d after %d calls", done, all, last-1)
				}
			}
			d, v, err := change.Compare(context.Background(), context.Background(), q)
			if err != nil {
				t.Fatal(err)
			}
			b, err := json.Marshal([]any{d, v})
			if err != nil {
				t.Fatal(err)
			}
			if n == 0 {
				want = string(b)
				if len(v.Findings) == 0 || len(d.Proxies) != 19 {
					t.Fatalf("%d proxies, findings %+v", len(d.Proxies), v.Findings)
				}
			}
			if string(b) != want {
				t.Errorf("%d workers give %s\nwant %s", n, b, want)
			}
		}
	}
}
