package toolkit

import (
	"strings"

	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// labelWorkload names the workload of a dataplane.
const labelWorkload = "kuma.io/workload"

// Workload identifies the proxy in logs and traces. A plugin that calls [WorkloadOf] for traffic
// declares at least [policy.ReadsTags].
type Workload struct {
	Mesh, Zone string
	Name       string // Kuma's resource identifier of the workload; "" without the label kuma.io/workload
}

// WorkloadOf returns the identity of the proxy of a context.
func WorkloadOf(c *policy.Context) Workload {
	w, p := Workload{Mesh: c.View.Name, Zone: c.View.Zone}, c.Proxy()
	if z := p.Labels[resource.LabelZone]; z != "" {
		w.Zone = z
	}
	if name := p.Labels[labelWorkload]; name != "" {
		w.Name = strings.Join([]string{"kri", "wl", w.Mesh, w.Zone, p.Namespace(), name, ""}, "_")
	}
	return w
}

// Attributes returns the keys and values that Kuma adds to spans and OpenTelemetry records. Empty
// values are left out.
func (w Workload) Attributes() [][2]string {
	out := make([][2]string, 0, 3)
	for _, a := range [...][2]string{{"kuma.mesh", w.Mesh}, {"kuma.zone", w.Zone}, {"kuma.workload", w.Name}} {
		if a[1] != "" {
			out = append(out, a)
		}
	}
	return out
}
