package mesh_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// TestInterceptionLabels checks the values of the labels that control how a proxy accepts
// connections: an invalid value has no effect.
func TestInterceptionLabels(t *testing.T) {
	dp := &resource.Dataplane{}
	dp.Networking.TransparentProxying = &resource.TransparentProxying{RedirectPortOutbound: 15001,
		RedirectPortInbound: 15006}
	for value, want := range map[string]uint32{"15002": 15002, "15001": 0, "15006": 0, "0": 0, "70000": 0, "x": 0, "": 0} {
		r := &resource.Resource{Labels: map[string]string{mesh.LabelVirtualPort: value}}
		if got, err := mesh.VirtualPort(r, dp); got != want || (err == nil) != (want != 0) {
			t.Errorf("%q: %d, %v; want %d", value, got, err, want)
		}
	}
	for value, want := range map[string][]uint32{
		"3306":       {3306},
		"5432_25_25": {25, 5432},
		"25_":        nil,
		"a":          nil,
		"0":          nil,
	} {
		r := &resource.Resource{Labels: map[string]string{mesh.LabelServerFirst: value}}
		if got, err := mesh.ServerFirst(r); !slices.Equal(got, want) || (err == nil) != (want != nil) {
			t.Errorf("%q: %v, %v; want %v", value, got, err, want)
		}
	}
	none := &resource.Resource{}
	if got, err := mesh.VirtualPort(none, dp); got != 0 || err != nil {
		t.Errorf("without the label: %d, %v", got, err)
	}
}

// TestVirtualRanges checks that adjacent ranges are merged by family.
func TestVirtualRanges(t *testing.T) {
	v := viewOf(t)
	if got := v.VirtualRanges(false); len(got) != 1 || got[0] != netip.MustParsePrefix("240.0.0.0/6") {
		t.Errorf("IPv4: %v", got)
	}
	if got := v.VirtualRanges(true); len(got) != 4 {
		t.Errorf("IPv6: %v", got)
	}
	for at, want := range map[string]bool{"240.0.0.0": true, "243.255.255.255": true, "244.0.0.0": false,
		"fd00:fd03::1": true, "fd00:fd04::1": false} {
		if got := v.IsVirtual(netip.MustParseAddr(at)); got != want {
			t.Errorf("%s: %t", at, got)
		}
	}
}

func viewOf(t *testing.T) *mesh.View {
	t.Helper()
	set := resource.NewSet([]*resource.Resource{{Key: resource.Key{Kind: "Mesh", Name: "default"},
		Spec: &resource.Mesh{}}})
	v, err := mesh.Build(set, "default", mesh.Options{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return v
}
