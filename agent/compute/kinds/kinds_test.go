package kinds_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// wanted are the kinds that the documentation promises.
var wanted = strings.Fields(`
	Mesh Dataplane MeshService MeshExternalService MeshMultiZoneService HostnameGenerator ExternalService ZoneEgress
	ZoneIngress Workload
	MeshAccessLog MeshAccessLogBackend GlobalAccessLogBackend MeshPassthrough MeshTimeout MeshCircuitBreaker
	MeshFaultInjection MeshTrafficPermission MeshHTTPRoute MeshTCPRoute MeshProxyPatch MeshRetry MeshHealthCheck
	MeshRateLimit MeshLoadBalancingStrategy MeshTLS MeshMetric MeshTrace
	MeshOpenTelemetryBackend
	TrafficLog Timeout CircuitBreaker FaultInjection TrafficPermission TrafficRoute ProxyTemplate
	RateLimit Retry HealthCheck TrafficTrace VirtualOutbound`)

func TestRegistryHoldsEveryKind(t *testing.T) {
	r, err := resource.NewRegistry(kinds.All()...)
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range wanted {
		d, ok := r.Lookup(kind)
		if !ok || d.Kind != kind {
			t.Errorf("%s is unknown", kind)
			continue
		}
		for _, name := range []string{d.Plural, strings.ToUpper(d.Plural), strings.ToLower(kind), d.Short} {
			if got, ok := r.Lookup(name); name != "" && (!ok || got.Kind != kind) {
				t.Errorf("%s is not found as %s", kind, name)
			}
		}
		if d.Legacy && !d.Policy {
			t.Errorf("%s is legacy but no policy", kind)
		}
	}
	if n := len(r.All()); n != len(wanted) {
		t.Errorf("%d kinds are registered, want %d", n, len(wanted))
	}
	if len(kinds.Registry().All()) != len(wanted) {
		t.Error("Registry and All differ")
	}
}

// TestShapes decodes policies with a targetRef in every possible position, with a valid and an
// invalid kind.
func TestShapes(t *testing.T) {
	r := kinds.Registry()
	for _, d := range kinds.Policies() {
		if d.Legacy {
			continue
		}
		shape := d.New().(*resource.Policy).Shape
		item := func(kind string) string {
			conf := `"default":{"x":1}`
			if shape.Inline {
				conf = `"rules":[]`
			}
			return `[{"targetRef":` + ref(kind) + `,` + conf + `}]`
		}
		spec := func(top, list, kind string) string {
			s := `{"type":"` + d.Kind + `","name":"p","spec":{"targetRef":` + ref(top)
			switch list {
			case "default":
				s += `,"default":{}`
			default:
				s += `,"` + list + `":` + item(kind)
			}
			return s + "}}"
		}
		for list, allowed := range map[string][]string{"from": shape.From, "to": shape.To} {
			for _, kind := range allowed {
				top := "Mesh"
				if shape.Inline && kind == "Mesh" {
					top = "MeshGateway" // a route about the whole mesh is a gateway's
				}
				noRefFault(t, r, spec(top, list, kind))
			}
			if len(allowed) > 0 {
				expectFault(t, r, spec("Mesh", list, "Dataplan"), "spec."+list+"[0].targetRef.kind", strings.Join(allowed, ", "))
				expectFault(t, r, spec("Dataplan", list, allowed[0]), "spec.targetRef.kind", strings.Join(shape.Top, ", "))
			} else if !shape.Default {
				expectFault(t, r, spec("Mesh", list, "Mesh"), "spec."+list, "has no "+list)
			}
		}
		if shape.Default {
			for _, kind := range shape.Top {
				doc := spec(kind, "default", "")
				noRefFault(t, r, doc)
			}
		}
	}
}

// noRefFault checks that the targetRefs of a document are valid; its confs are empty.
func noRefFault(t *testing.T, r *resource.Registry, doc string) {
	t.Helper()
	_, faults := r.Decode("", []byte(doc))
	for _, f := range faults {
		if strings.Contains(f.Field, "targetRef") {
			t.Errorf("%s\n%v", doc, f)
		}
	}
}

// ref returns a targetRef with the fields that its kind requires.
func ref(kind string) string {
	switch kind {
	case "Mesh":
		return `{"kind":"Mesh"}`
	case "MeshSubset":
		return `{"kind":"MeshSubset","tags":{"a":"b"}}`
	}
	return `{"kind":"` + kind + `","name":"n"}`
}

func expectFault(t *testing.T, r *resource.Registry, doc, field, reason string) {
	t.Helper()
	_, faults := r.Decode("", []byte(doc))
	for _, f := range faults {
		if f.Field == field && strings.Contains(f.Reason, reason) {
			return
		}
	}
	t.Errorf("%s\nwant a fault at %s with %q, got %v", doc, field, reason, faults)
}

// TestReferenceInputs decodes the inputs of the reference cases if they are available.
func TestReferenceInputs(t *testing.T) {
	files, err := filepath.Glob("../../../../shared/conformance/cases/*/input.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Skip("the reference cases do not exist next to this repository")
	}
	r := kinds.Registry()
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		res, faults := r.Decode(f, data)
		if len(faults) > 0 {
			t.Errorf("%v", faults)
		}
		if len(res) == 0 {
			t.Errorf("%s: no resource", f)
		}
	}
	// The shared shape and the core kinds must reject these; the plugins validate the rest.
	shapes := []string{
		"71-rb-invalid/invalid/bad-01", "71-rb-invalid/invalid/bad-02", "71-rb-invalid/invalid/bad-05",
		"71-rb-invalid/invalid/bad-06", "45-mal-invalid/invalid/i12", "45-mal-invalid/invalid/i20",
	}
	for _, name := range shapes {
		path := filepath.Join("../../../../shared/conformance/cases", name)
		data, err := os.ReadFile(path + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		list, err := os.ReadFile(path + ".json")
		if err != nil {
			t.Fatal(err)
		}
		var fields []string
		if err := json.Unmarshal(list, &fields); err != nil {
			t.Fatal(err)
		}
		_, faults := r.Decode("", data)
		for _, field := range fields {
			found := false
			for _, f := range faults {
				found = found || f.Field == field
			}
			if !found {
				t.Errorf("%s: want a fault at %s, got %v", name, field, faults)
			}
		}
	}
}
