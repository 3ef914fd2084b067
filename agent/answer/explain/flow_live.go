package explain

import (
	"fmt"
	"slices"
	"time"

	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/envoy"
	"github.com/nearside-mesh/nearside/agent/compute/match"
	"github.com/nearside-mesh/nearside/agent/model/finding"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Live is what the Envoy of a dataplane has, as far as the agent that serves it knows.
type Live struct {
	// Resources are those that it has, or is being sent; of what it rejects or what is withheld from
	// it, the form that it accepted last.
	Resources *envoy.Snapshot
	Held      []Held // what it has another form of, or nothing
	Draining  []Draining
}

// Held is a resource that an Envoy does not have as it was made.
type Held struct {
	ID     draft.ResourceID
	Reason string
	Check  bool   // it is withheld by the check, and not rejected by the Envoy
	Older  string // the version of an older form that it came with, which is in force and not known; "" for none
	Lacks  bool   // it has told what it came with, and this is not among it
	// Overtaken says that it had accepted this form before, and came back without it.
	Overtaken bool
}

// Draining is a listener that was changed: connections that were open may use its old filter
// chains.
type Draining struct {
	Listener string
	Until    time.Time
}

// FlowHeld is a part of the config on the way that the Envoy does not have as it was made.
type FlowHeld struct {
	Type   string `json:"type"` // "listener"
	Name   string `json:"name"`
	By     string `json:"by"`  // HeldByEnvoy or HeldByCheck
	Has    string `json:"has"` // HasAccepted, HasOlder or HasNothing
	Reason string `json:"reason"`
}

// Who holds a resource, and what the Envoy has in its place.
const (
	HeldByEnvoy = "envoy" // rejected
	HeldByCheck = "check" // withheld
	HasAccepted = "accepted"
	HasOlder    = "older"
	HasNothing  = "nothing"
)

// UseLive makes explanations go by what Envoys have: live returns nil for a dataplane whose Envoy
// is not connected, and then the config that is made decides. Suggestions and shadow policies
// always go by what is made. It must be called before the first question.
func (t *Traffic) UseLive(live func(dataplane string) *Live) { t.live = live }

// use puts what the Envoy has in the place of what was made.
func (p *flowProxy) use(l *Live, facts *finding.Facts) {
	if l == nil || l.Resources == nil {
		return
	}
	p.live, p.snapshot = l, l.Resources
	if len(l.Held) > 0 {
		p.made = p.config
	}
	p.config = match.Open(p.snapshot, facts)
}

// held adds what of the way the Envoy does not have as it was made, and until when connections from
// before a change live on.
func (a *about) held(f *Way, conn *match.Conn) {
	l := a.p.live
	if l == nil {
		return
	}
	if a.trace.Listener != nil {
		for _, d := range l.Draining {
			if d.Listener == a.trace.Listener.Resource && (f.OldUntil == nil || d.Until.After(*f.OldUntil)) {
				f.OldUntil = &d.Until
			}
		}
	}
	if f.OldUntil != nil {
		f.Reason += fmt.Sprintf("; listener %s was changed, and connections from before may use its old filter chains "+
			"until %s", f.Listener, f.OldUntil.UTC().Format(time.RFC3339))
	}
	if a.p.made == nil {
		return
	}
	made := a.p.made.Connection(conn)
	if a.in.req != nil {
		made = a.p.made.Request(conn, a.in.req)
	}
	parts := slices.Concat(partsOf(a.trace), partsOf(made))
	for _, h := range l.Held {
		if !slices.Contains(parts, h.ID) {
			continue
		}
		out := FlowHeld{Type: nameOfType(h.ID.TypeURL), Name: h.ID.Name, By: HeldByEnvoy, Has: HasNothing, Reason: h.Reason}
		by, has := "rejected by Envoy", "it has nothing in its place"
		if h.Check {
			out.By, by = HeldByCheck, "withheld from Envoy"
		}
		switch {
		case h.Older != "":
			out.Has, has = HasOlder, fmt.Sprintf("an older form that it came with decides (version %s), which is not known "+
				"here: nearside proxy config %s shows it", clip.Text(h.Older, maxShown), clip.Value(f.Dataplane.Name))
		case h.Overtaken && h.Lacks:
			has = "it accepted that form before and came back without it; it has nothing in its place"
		case h.Overtaken:
			has = "it accepted that form before and does not have it any more; in its place it has one that it came with, " +
				"or nothing"
		}
		for k := range envoy.NumKinds {
			if k.URL() == h.ID.TypeURL && a.p.snapshot.Find(k, h.ID.Name) != nil {
				out.Has, has = HasAccepted, "the form that it accepted last decides"
			}
		}
		f.Held = append(f.Held, out)
		f.Reason += fmt.Sprintf("; %s %s is %s (%s): %s", out.Type, clip.Value(out.Name), by,
			clip.Text(h.Reason, maxShown), has)
	}
}

// partsOf lists the resources that a way goes through.
func partsOf(tr *match.Trace) []draft.ResourceID {
	var out []draft.ResourceID
	add := func(p *finding.Place) {
		if p != nil {
			out = append(out, draft.ResourceID{TypeURL: p.Type, Name: p.Resource})
		}
	}
	add(tr.Listener)
	add(tr.Route)
	for i := range tr.Steps {
		add(tr.Steps[i].Place)
	}
	for i := range tr.Targets {
		add(tr.Targets[i].Place)
		out = append(out, draft.ResourceID{TypeURL: envoy.KindEndpoint.URL(), Name: tr.Targets[i].Cluster})
	}
	return out
}

// nameOfType is how messages call a type of Envoy's resources.
func nameOfType(url string) string {
	switch url {
	case envoy.KindListener.URL():
		return "listener"
	case envoy.KindRoute.URL():
		return "route configuration"
	case envoy.KindCluster.URL():
		return "cluster"
	case envoy.KindEndpoint.URL():
		return "endpoints"
	}
	return match.ShortURL(url)
}

// plainAddress says that what passes outside of the mesh is a service of it, which the dataplane
// dials by an address that it knows nothing of.
func (t *Traffic) plainAddress(p *flowProxy, flow *Flow, d *dialled) {
	if !isPassthrough(flow.Listener) || flow.Verdict != VerdictAllowed {
		return
	}
	if to, ok := t.inboundAt(d.dst); ok {
		if r := t.mesh.View.Dataplane(to.dataplane); r != nil {
			if spec, ok := r.Spec.(*resource.Dataplane); ok {
				flow.Bypasses = append(flow.Bypasses, t.mesh.View.ProxyTags(spec)[resource.TagService]...)
			}
		}
	}
	for _, s := range t.mesh.View.Services() {
		if s.Outside == nil {
			continue
		}
		for i := range s.Outside.List {
			if e := &s.Outside.List[i]; d.name && e.Address == d.host && e.Port == uint32(d.dst.Port()) &&
				!slices.Contains(flow.Bypasses, s.ID.Name) {
				flow.Bypasses = append(flow.Bypasses, s.ID.Name)
			}
		}
	}
	if len(flow.Bypasses) > 0 {
		flow.Reason += fmt.Sprintf("; it leaves as a plain address: the dataplane has no outbound for %s there, "+
			"so that nothing that policies say of it applies", clip.Value(flow.Bypasses[0]))
	}
}
