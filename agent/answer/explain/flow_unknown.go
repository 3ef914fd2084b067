package explain

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/strict"
	"github.com/nearside-mesh/nearside/agent/compute/names"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
)

// meshSuffix is the suffix of names reserved for meshes.
const meshSuffix = ".mesh"

// noDestination explains a name without a destination: it belongs to the meshes and has no address
// for the dataplane, or it can only be the name of a service, and the dataplane has no outbound for
// it. It returns nil if the host may be outside the mesh.
func (t *Traffic) noDestination(p *flowProxy, d *dialled) *Flow {
	if !d.any {
		return nil
	}
	is := p.serviceNamed(d)
	if d.is.Owner != nil {
		is = t.outboundsOf(d.is.Owner)
	}
	var known []string
	for _, s := range t.mesh.View.Services() {
		o := &mesh.Outbound{Service: s}
		if is == nil || !is(o) {
			known = append(known, namesOf(o)...)
			continue
		}
		reason := fmt.Sprintf("%s is a service of the mesh %s, and the dataplane has no outbound for it",
			d.host, t.mesh.View.Name)
		if !p.redirected() {
			reason += " and no transparent proxy: add an outbound and dial its address"
		}
		return p.noConnection(d, VerdictUnreachable, reason)
	}
	switch {
	case d.is.Class != names.ClassForwarded && d.is.Owner != nil:
		return p.noConnection(d, VerdictUnreachable,
			fmt.Sprintf("%s is a name of the meshes, and the resolver has no address of it for this dataplane", d.host))
	case d.is.Class == names.ClassForwarded && strings.Contains(d.host, "."):
		return nil
	}
	reason := fmt.Sprintf("no service of the mesh %s has the name %s", t.mesh.View.Name, d.host)
	slices.Sort(known)
	if near := strict.Nearest(strings.TrimSuffix(d.host, meshSuffix), slices.Compact(known)); near != "" {
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
