package resource_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

type sharer map[string]map[string]string

func (s sharer) Share(key []byte, make func() map[string]string) map[string]string {
	if s[string(key)] == nil {
		s[string(key)] = make()
	}
	return s[string(key)]
}

// TestOutboundsShareTags checks that equal tags of outbounds share one map, also across dataplanes
// that are decoded one by one, and that different tags never do, whatever their texts.
func TestOutboundsShareTags(t *testing.T) {
	r := registry(t).Sharing(sharer{})
	tags := func(name string, lists ...string) (out []map[string]string) {
		t.Helper()
		text := fmt.Sprintf("{type: Dataplane, mesh: default, name: %s, networking: {address: 10.0.0.1, "+
			"inbound: [{port: 80, tags: {kuma.io/service: web}}], outbound: [", name)
		for i, l := range lists {
			text += fmt.Sprintf("{port: %d, tags: {%s}},", 1000+i, l)
		}
		rs, faults := r.Decode("", []byte(strings.TrimSuffix(text, ",")+"]}}"))
		if len(faults) > 0 {
			t.Fatal(faults)
		}
		for _, o := range rs[0].Spec.(*resource.Dataplane).Networking.Outbound {
			out = append(out, o.Tags)
		}
		return out
	}
	lists := []string{"kuma.io/service: a", "kuma.io/service: a, b: c", "kuma.io/service: a, b: cd",
		"kuma.io/service: a, bc: d", "kuma.io/service: b"}
	one, two := tags("one", lists...), tags("two", lists...)
	for i := range lists {
		if reflect.ValueOf(one[i]).Pointer() != reflect.ValueOf(two[i]).Pointer() {
			t.Errorf("%s is there twice", lists[i])
		}
		for j := range lists {
			if i != j && reflect.DeepEqual(one[i], two[j]) {
				t.Errorf("%s and %s are taken for the same", lists[i], lists[j])
			}
		}
	}
	if fmt.Sprint(one[2]) != "map[b:cd kuma.io/service:a]" {
		t.Errorf("got %v", one[2])
	}
}
