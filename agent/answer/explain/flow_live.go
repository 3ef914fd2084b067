package explain

import (
	"fmt"
	"slices"
	"time"

	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/envoy"
	"github.com/nearside-mesh/nearside/agent/compute/match"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/finding"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Live is the config that the Envoy of a dataplane has, as far as its agent knows.
type Live struct {
	// Resources are the resources that Envoy has or is receiving. For a rejected or withheld
	// resource, this is the last accepted version.
	Resources *envoy.Snapshot
	Held      []Held // resources of which Envoy has another version or none
	Draining  []Draining
}

// Held is a resource whose computed version Envoy does not have.
type Held struct {
	ID     draft.ResourceID
	Reason string
	Check  bool   // withheld by the check, not rejected by Envoy
	Older  string // unknown older version from before Envoy connected, which is in use; "" if none
	Lacks  bool   // Envoy has reported its versions, and this resource is not among them
	// Without are the policies without which Envoy gets another version; nil for none.
	Without []api.Omitted
	// Overtaken means that Envoy had accepted this version before and reconnected without it.
	Overtaken bool
}

// Draining is a listener that has changed. Older connections may use its previous filter chains.
type Draining struct {
	Listener string
	Until    time.Time
	Assumed  string // why Until assumes Envoy's default drain time; "" if Envoy reports its own
}

// FlowHeld is a resource on the path whose computed version Envoy does not have.
type FlowHeld struct {
	Type   string `json:"type"` // "listener"
	Name   string `json:"name"`
	By     string `json:"by"`  // HeldByEnvoy or HeldByCheck
	Has    string `json:"has"` // HasAccepted, HasOlder, HasWithout, or HasNothing
	Reason string `json:"reason"`
	// policies whose effect the version that Envoy has lacks, for HasWithout
	Without []api.Omitted `json:"without,omitempty"`
}

// Values of the fields By and Has of [FlowHeld].
const (
	HeldByEnvoy = "envoy" // rejected by Envoy
	HeldByCheck = "check" // withheld by the check
	HasAccepted = "accepted"
	HasOlder    = "older"
	HasWithout  = "without" // a version without some policies
	HasNothing  = "nothing"
)

// UseLive makes explanations use the config that Envoys have. live returns nil if the Envoy of a
// dataplane is not connected; the computed config is used then. Suggestions and shadow policies
// always use computed configs. Call it before the first question.
func (t *Traffic) UseLive(live func(dataplane string) *Live) { t.live = live }

// useLive replaces the computed config by the one that Envoy has.
func (p *flowProxy) useLive(l *Live, facts *finding.Facts) {
	if l == nil || l.Resources == nil {
		return
	}
	p.live, p.snapshot = l, l.Resources
	if len(l.Held) > 0 {
		p.computed = p.config
	}
	p.config = match.Open(p.snapshot, facts)
}

// addHeld adds the resources on the path whose computed version Envoy does not have, and the time
// until which older connections are served.
func (a *about) addHeld(f *Way, conn *match.Conn) {
	l := a.p.live
	if l == nil {
		return
	}
	assumed := ""
	if a.trace.Listener != nil {
		for _, d := range l.Draining {
			if d.Listener == a.trace.Listener.Resource && (f.OldUntil == nil || d.Until.After(*f.OldUntil)) {
				f.OldUntil, assumed = &d.Until, d.Assumed
			}
		}
	}
	if f.OldUntil != nil {
		f.Reason += fmt.Sprintf("; listener %s has changed, and older connections may use its previous filter chains "+
			"until %s", f.Listener, f.OldUntil.UTC().Format(time.RFC3339))
		if a.trace.Outcome == match.Denied && a.in.req == nil {
			f.Reason += "; a TCP connection from before the change keeps its previous permission until then"
		}
		if assumed != "" {
			f.Reason += ", by Envoy's default drain time, because the Envoy does not report its own: " +
				clip.Text(assumed, maxShown)
		}
	}
	if a.p.computed == nil {
		return
	}
	computed := a.p.computed.Connection(conn)
	if a.in.req != nil {
		computed = a.p.computed.Request(conn, a.in.req)
	}
	parts := slices.Concat(partsOf(a.trace), partsOf(computed))
	for _, h := range l.Held {
		if !slices.Contains(parts, h.ID) {
			continue
		}
		out := FlowHeld{Type: nameOfType(h.ID.TypeURL), Name: h.ID.Name, By: HeldByEnvoy, Has: HasNothing, Reason: h.Reason}
		by, has := "rejected by Envoy", "Envoy has no other version"
		if h.Check {
			out.By, by = HeldByCheck, "withheld from Envoy"
		}
		switch {
		case h.Older != "":
			out.Has, has = HasOlder, fmt.Sprintf("Envoy uses an older version (%s) from before it connected; "+
				"run nearside proxy config %s to show it", clip.Text(h.Older, maxShown), clip.Value(f.Dataplane.Name))
		case h.Overtaken && h.Lacks:
			has = "Envoy accepted this version before and reconnected without it; Envoy has no other version"
		case h.Overtaken:
			has = "Envoy accepted this version before but no longer has it; it uses a version from before it connected, " +
				"or none"
		}
		for k := range envoy.NumKinds {
			if k.URL() == h.ID.TypeURL && a.p.snapshot.Find(k, h.ID.Name) != nil {
				out.Has, has = HasAccepted, "Envoy uses the version that it accepted last"
			}
		}
		if len(h.Without) > 0 {
			out.Has, out.Without, has = HasWithout, h.Without, "Envoy gets "+api.OmittedText(h.Without)
		}
		f.Held = append(f.Held, out)
		f.Reason += fmt.Sprintf("; %s %s is %s (%s): %s", out.Type, clip.Value(out.Name), by,
			clip.Text(h.Reason, maxShown), has)
	}
}

// partsOf lists the resources on a path.
func partsOf(tr *match.Trace) []draft.ResourceID {
	var out []draft.ResourceID
	add := func(p *finding.Position) {
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

// nameOfType returns the name of an Envoy resource type for messages.
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

// noteBypasses notes that the destination is a service of the mesh although the dataplane has no
// outbound for its address.
func (t *Traffic) noteBypasses(p *flowProxy, flow *Flow, d *dialled) {
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
		flow.Reason += fmt.Sprintf("; the dataplane has no outbound for %s at this address, "+
			"so its policies do not apply", clip.Value(flow.Bypasses[0]))
	}
}
