package ads

import (
	"maps"
	"slices"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

func resourcesNamed(names ...string) []*draft.Resource {
	var out []*draft.Resource
	for _, name := range names {
		out = append(out, &draft.Resource{Name: name, Version: "1"})
	}
	return out
}

func TestNamesIn(t *testing.T) {
	list := resourcesNamed("inbound:10.0.0.1:80", "inbound:10.0.0.1:8080", "web", "web-v2", "web_old", "")
	for message, want := range map[string]string{
		"":            "",
		"no name":     "",
		"webapp: bad": "",
		"Error adding/updating listener(s) inbound:10.0.0.1:8080: cannot bind": "inbound:10.0.0.1:8080",
		"listener inbound:10.0.0.1:80: x, inbound:10.0.0.1:8080: y":            "inbound:10.0.0.1:80 inbound:10.0.0.1:8080",
		"cluster 'web-v2' is bad": "web-v2",
		"cluster web-v3 is bad":   "",
		"web-v2 and web":          "web web-v2",
		"(web)":                   "web",
		"web_old.":                "web_old",
	} {
		if got := strings.Join(slices.Sorted(maps.Keys(namesIn(message, list))), " "); got != want {
			t.Errorf("%q names %q, want %q", message, got, want)
		}
	}
}

func FuzzNamesIn(f *testing.F) {
	f.Add("listener a: bad", "a", "ab")
	f.Add("\xff\x00é", "é", "\xff")
	f.Fuzz(func(t *testing.T, message, a, b string) {
		for name := range namesIn(message, resourcesNamed(a, b)) {
			if !strings.Contains(message, name) {
				t.Errorf("%q is not in %q", name, message)
			}
		}
	})
}

func FuzzNodeID(f *testing.F) {
	for _, id := range []string{"default.web", "default.web.kuma-demo", ".", "a.", "a.b/c", "a.\x00", "é.é", ""} {
		f.Add(id)
	}
	f.Fuzz(func(t *testing.T, id string) {
		mesh, name, err := node.ParseID(id)
		if err != nil {
			return
		}
		if mesh+"."+name != id || strings.Contains(mesh, ".") || mesh == "" || name == "" || len(id) > node.MaxNodeID {
			t.Errorf("%q parsed to %q and %q", id, mesh, name)
		}
	})
}

func TestEndpointName(t *testing.T) {
	for want, c := range map[string]*clusterv3.Cluster{
		"":    {Name: "static"},
		"web": {Name: "web", EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{}},
		"svc": {Name: "web", EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{ServiceName: "svc"}},
	} {
		body, err := proto.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		if got := endpointName(draft.NewResource(c.GetName(), body)); got != want {
			t.Errorf("%v: %q, want %q", c, got, want)
		}
	}
}

func FuzzProtoField(f *testing.F) {
	f.Add([]byte{0x1a, 0x02, 0x12, 0x00})
	f.Add([]byte{0x1b, 0xff})
	f.Fuzz(func(t *testing.T, body []byte) {
		if v, ok := protoField(body, fieldEDSClusterConfig); ok && len(v) > len(body) {
			t.Errorf("%d bytes out of %d", len(v), len(body))
		}
	})
}

func TestMergeLists(t *testing.T) {
	base := resourcesNamed("a", "c", "e")
	other := &draft.Resource{Name: "c", Version: "2"}
	line := func(list []*draft.Resource) string {
		var words []string
		for _, r := range list {
			words = append(words, r.Name+r.Version)
		}
		return strings.Join(words, " ")
	}
	if got := draft.Merge(base, base[:2], nil); !draft.SameList(got, base) {
		t.Errorf("merging nothing new made %s", line(got))
	}
	if got := line(draft.Merge(base, append(resourcesNamed("b"), other), func(name string) bool {
		return name == "e"
	})); got != "a1 b1 c2" {
		t.Errorf("got %s", got)
	}
	if got := line(draft.Merge(nil, resourcesNamed("x"), nil)); got != "x1" {
		t.Errorf("got %s", got)
	}
}

// TestNamesOfOtherTypes: the stream handlers keep what they are subscribed to, which nobody bounds
// for types that are not served.
func TestNamesOfOtherTypes(t *testing.T) {
	st := &adsStream{srv: NewServer(ServerOptions{}), node: &proxyNode{}}
	delta := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: "other", ResourceNamesSubscribe: []string{"a"},
		ResourceNamesUnsubscribe: []string{"b"}, InitialResourceVersions: map[string]string{"c": "1"}}
	sotw := &discoveryv3.DiscoveryRequest{TypeUrl: "other", ResourceNames: []string{"a"}}
	if err := st.OnStreamDeltaRequest(1, delta); err != nil {
		t.Fatal(err)
	}
	if err := st.OnStreamRequest(1, sotw); err != nil {
		t.Fatal(err)
	}
	if n := len(delta.ResourceNamesSubscribe) + len(delta.ResourceNamesUnsubscribe) + len(delta.InitialResourceVersions) +
		len(sotw.ResourceNames); n != 0 {
		t.Errorf("%d names are left to the handlers", n)
	}
}
