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

// meshSuffix ends names that the mesh alone can have.
const meshSuffix = ".mesh"

// nowhere is the answer for a name that leads nowhere from a dataplane: that of a service for which
// it has no outbound, or one that could only be that of a service and is not. It is nil for what
// may be outside of the mesh.
func (t *Traffic) nowhere(p *flowProxy, d *dialled) *Flow {
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
			reason += " and no transparent proxy: add an outbound, and dial its address"
		}
		return p.leads(d, VerdictUnreachable, reason)
	}
	if strings.Contains(d.host, ".") && !strings.HasSuffix(d.host, meshSuffix) {
		return nil
	}
	reason := fmt.Sprintf("no service of the mesh %s has the name %s", t.mesh.View.Name, d.host)
	slices.Sort(names)
	if near := strict.Nearest(strings.TrimSuffix(d.host, meshSuffix), slices.Compact(names)); near != "" {
		reason += fmt.Sprintf("; did you mean %s?", near)
	} else {
		reason += "; nearside inspect services lists them"
	}
	return p.leads(d, VerdictUnknownHost,
		reason+"; if it is a host outside of the mesh, give the address that the client dials (ip)")
}

// leads is an answer before any listener.
func (p *flowProxy) leads(d *dialled, verdict, reason string) *Flow {
	step := FlowStep{At: "address", Saw: d.host, Note: "the name leads nowhere", Eliminated: []Eliminated{},
		Policies: []api.FlowPolicy{}}
	return &Flow{Way: Way{Verdict: verdict, Reason: reason, Dataplane: api.RefOf(p.dataplane.Key),
		Address:  d.host + ":" + strconv.Itoa(int(d.dst.Port())),
		Clusters: []FlowCluster{}, Steps: []FlowStep{step}, Policies: []api.FlowPolicy{}, AccessLogs: []api.FlowLog{}},
		Servers: []Way{}}
}
