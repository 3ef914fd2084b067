package peers

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

func digestsOf(n int) map[resource.Key]string {
	out := map[resource.Key]string{{Kind: "Mesh", Name: "default"}: "00"}
	for i := range n {
		out[resource.Key{Kind: "MeshTimeout", Mesh: "default", Name: fmt.Sprintf("timeout-%05d", i)}] =
			fmt.Sprintf("%016x", i)
	}
	return out
}

// TestFilesBodies checks that items stay within their size, that one change touches one item, and
// that a comparison finds exactly the changes, also between nodes with other numbers of items.
func TestFilesBodies(t *testing.T) {
	if own, _ := filesBodies(nil); len(own) != 1 || string(own["00"]) != "{}" {
		t.Errorf("a node without files publishes %q", own)
	}
	for _, n := range []int{1, 200, 2000, 5000} {
		own, large := filesBodies(digestsOf(n))
		if large {
			t.Fatalf("%d resources are too many", n)
		}
		for name, body := range own {
			if len(body) > maxFilesBody {
				t.Errorf("%d resources: item %s has %d bytes", n, name, len(body))
			}
		}
		next := digestsOf(n)
		key := resource.Key{Kind: "MeshTimeout", Mesh: "default", Name: "timeout-00000"}
		next[key] = "other"
		changed, _ := filesBodies(next)
		touched := 0
		for name, body := range own {
			if !bytes.Equal(body, changed[name]) {
				touched++
			}
		}
		if touched != 1 || len(own) != len(changed) {
			t.Errorf("%d resources: a change touches %d of %d items", n, touched, len(own))
		}
		if d := compareFiles(own, changed); d.Total != 1 || d.Items[0] != (api.FileDifference{Type: key.Kind, Mesh: key.Mesh,
			Name: key.Name, State: api.FileDiffers}) {
			t.Errorf("%d resources: %+v", n, d)
		}
		none, _ := filesBodies(map[resource.Key]string{{Kind: "Mesh", Name: "default"}: "00"})
		if d := compareFiles(own, none); d.Total != n || len(d.Items) != min(n, maxFileDiffs) ||
			d.Items[0].State != api.FileMissingThere {
			t.Errorf("%d resources against none: %+v", n, d)
		}
		if d := compareFiles(own, own); d.Total != 0 {
			t.Errorf("%d equal resources: %+v", n, d)
		}
	}
	if own, large := filesBodies(digestsOf(100_000)); !large || len(own) != 0 {
		t.Errorf("100,000 resources: %d items", len(own))
	}
	if d := compareFiles(map[string][]byte{"00": []byte(`{"Mesh a":"1"}`)},
		map[string][]byte{"00": []byte(`nonsense`)}); d.Total != 1 || d.Items[0].Name != "a" || d.Items[0].Mesh != "" {
		t.Errorf("an invalid body: %+v", d)
	}
}
