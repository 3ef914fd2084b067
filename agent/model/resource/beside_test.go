package resource_test

import (
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// each distributes the calls over all workers.
func each(workers, n int, do func(worker, i int)) error {
	var wg sync.WaitGroup
	for worker := range workers {
		wg.Go(func() {
			for i := worker; i < n; i += workers {
				do(worker, i)
			}
		})
	}
	wg.Wait()
	return nil
}

// TestSideBySide checks that workers do not change the resources, the faults, or their order, for
// valid streams, for streams with faults of all kinds, and for streams near the limits.
func TestSideBySide(t *testing.T) {
	reg, err := resource.NewRegistry(resource.Core()...)
	if err != nil {
		t.Fatal(err)
	}
	dataplane := func(i int) string {
		return fmt.Sprintf("type: Dataplane\nmesh: default\nname: dp-%d\nnetworking:\n  address: 10.0.0.1\n  inbound:\n"+
			"  - port: 8080\n    tags: {kuma.io/service: a}\n", i)
	}
	var good, bad, values, huge strings.Builder
	for i := range 300 {
		good.WriteString(dataplane(i) + "---\n")
		switch i % 7 {
		case 0:
			bad.WriteString(dataplane(i) + "unknown: 1\nnetworking: {}\n---\n# nothing\n---\n")
		case 1:
			bad.WriteString("type: [\n---\n")
		case 2:
			bad.WriteString(`{"type":"Mesh","name":"a"} {"type":"Mesh","name":"B!"} {"type":"Mesh","name":"c"}` + "\n---\n")
		case 3:
			bad.WriteString("just text\n---\n\xff\n---\n")
		default:
			bad.WriteString(dataplane(i) + "...\n%YAML 1.2\n---\n")
		}
		if i >= 100 {
			continue
		}
		values.WriteString("[" + strings.Repeat("1,", 200) + "1]\n---\n")
		huge.WriteString("a: &a [" + strings.Repeat("1,", 60) + "1]\nb: [" + strings.Repeat("*a,", 30) + "*a]\n---\n")
	}
	for name, text := range map[string]string{
		"good":   good.String(),
		"bad":    bad.String(),
		"values": values.String(),
		"huge":   huge.String(),
		"few":    dataplane(1),
	} {
		for _, lim := range []resource.Limits{
			{}, {Documents: 299}, {Documents: 300}, {Nodes: 20_000}, {Nodes: 100}, {FileBytes: 1000}, {DocumentBytes: 120},
		} {
			want, faults := reg.DecodeLimits("f", []byte(text), lim)
			if name == "good" && lim == (resource.Limits{}) && len(want) != 300 {
				t.Fatalf("%d resources: %v", len(want), faults)
			}
			got, others := reg.On(3, each).DecodeLimits("f", []byte(text), lim)
			if !reflect.DeepEqual(got, want) || !reflect.DeepEqual(others, faults) {
				t.Errorf("%s within %+v: %d resources and %d faults, want %d and %d", name, lim, len(got), len(others), len(want),
					len(faults))
			}
		}
	}
}
