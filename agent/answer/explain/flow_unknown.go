package explain

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/strict"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
)

// meshSuffix is the suffix of names reserved for meshes.
const meshSuffix = ".mesh"

// noDestination explains a name without a destination: the dataplane has no outbound for its
// service, or the name can only be a service name and no service has it. It returns nil if the host
// may be outside the mesh.
func (t *Traffic) noDestination(p *flowProxy, d *dialled) *Flow {
	if !d.any {
		return nil
	}
	isNamed := namedBy(t.mesh.View, d.host)
	var names []string
	for _, s := range t.mesh.View.Services() {
		o := &mesh.Outbound{Service: s}
		if isOutside(s, d.host) {
			return nil
		}
		if !isNamed(o) {
			names = append(names, namesOf(o)...)
			continue
		}
		reason := fmt.Sprintf("%s is a service of the mesh %s, and the dataplane has no outbound for it",
			d.host, t.mesh.View.Name)
		if !p.redirected() {
			reason += " and no transparent proxy: add an outbound and dial its address"
		}
		return p.noConnection(d, VerdictUnreachable, reason)
	}
	if strings.Contains(d.host, ".") && !strings.HasSuffix(d.host, meshSuffix) {
		return nil
	}
	reason := fmt.Sprintf("no service of the mesh %s has the name %s", t.mesh.View.Name, d.host)
	slices.Sort(names)
	if near := strict.Nearest(strings.TrimSuffix(d.host, meshSuffix), slices.Compact(names)); near != "" {
		reason += fmt.Sprintf("; did you mean %s?", near)
	} else {
		reason += "; run nearside inspect services to list them"
	}
	return p.noConnection(d, VerdictUnknownHost,
		reason+"; if the host is outside the mesh, set ip to the address that the client dials")
}

// noConnection returns a flow that ends before any listener.
func (p *flowProxy) noConnection(d *dialled, verdict, reason string) *Flow {
	step := FlowStep{At: "address", Saw: d.host, Note: "the name has no address here", Eliminated: []Eliminated{},
		Policies: []api.FlowPolicy{}}
	return &Flow{Way: Way{Verdict: verdict, Reason: reason, Dataplane: api.RefOf(p.dataplane.Key),
		Address:  d.host + ":" + strconv.Itoa(int(d.dst.Port())),
		Clusters: []FlowCluster{}, Steps: []FlowStep{step}, Policies: []api.FlowPolicy{}, AccessLogs: []api.FlowLog{}},
		Servers: []Way{}}
}
