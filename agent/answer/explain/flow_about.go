package explain

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/compute/match"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
)

// about is the path through one proxy with its context in the mesh.
type about struct {
	t        *Traffic
	p        *flowProxy
	trace    *match.Trace
	dst      netip.AddrPort
	in       *inquiry
	outbound *mesh.Outbound // whose listener accepted the connection; nil if none
	inbound  int            // index of the inbound whose listener accepted it; -1 if none
	client   *flowProxy     // for an inbound
	// serverName is the TLS server name, in lower case, that the client of an inbound requests.
	serverName string
	// egress is true for the proxy of an egress. Policies treat its destination as inbound 0.
	egress bool
}

// way converts the trace to a [Way].
func (a *about) way(conn *match.Conn) *Way {
	tr := a.trace
	f := &Way{
		about:  a,
		Reason: tr.Reason, Dataplane: api.RefOf(a.p.dataplane.Key), Address: a.dst.String(), Flag: tr.Flag, Status: tr.Status,
		Clusters: []FlowCluster{}, Steps: make([]FlowStep, 0, len(tr.Steps)+1), Policies: []api.FlowPolicy{},
		AccessLogs: []api.FlowLog{},
	}
	if tr.Listener != nil {
		f.Listener = tr.Listener.Resource
	}
	f.Verdict = a.verdict()
	if f.Verdict == VerdictClosed {
		f.ClosedAt = closedAt(tr.At)
	}
	for i := range tr.Steps {
		s := &tr.Steps[i]
		switch s.Level {
		case match.LevelChain:
			f.FilterChain = s.Choice
		case match.LevelVirtualHost:
			f.VirtualHost = s.Choice
		case match.LevelRoute:
			f.Route = s.Choice
		}
		f.Steps = append(f.Steps, a.step(s))
	}
	for i := range tr.Targets {
		f.Clusters = append(f.Clusters, a.target(&tr.Targets[i], f.Listener))
	}
	a.logs(f)
	a.effects(f)
	if f.Reason == "" {
		f.Reason = fmt.Sprintf("%s at %s", tr.Outcome, stepName(tr.At))
	}
	if tr.Outcome == match.Broken && a.in.req == nil && a.in.first != match.TLSHello {
		f.Reason += "; explain a request instead to see how HTTP is routed"
	}
	f.Reason += a.denialReason(f)
	if tr.Outcome == match.Answered && tr.At == match.LevelRoute && f.Verdict == VerdictDenied &&
		isPassthrough(f.Listener) {
		f.Reason += fmt.Sprintf("; the proxy permits requests on this port, but none to host %s",
			clip.Text(a.in.req.Host, maxShown))
	}
	f.Accepted = a.p.live != nil
	a.addHeld(f, conn)
	for _, d := range f.disturbances() {
		f.Reason += "; " + d
	}
	a.explainSilence(f, conn)
	f.collect()
	return f
}

// denialReason names the policies by which a filter denied the client; "" if none did.
func (a *about) denialReason(f *Way) string {
	if a.trace.Outcome != match.Denied || a.client == nil {
		return ""
	}
	i := slices.IndexFunc(f.Steps, func(s FlowStep) bool {
		return s.At == stepName(a.trace.At) && strings.HasPrefix(s.Chose, "deny")
	})
	if i < 0 {
		return ""
	}
	client := strings.Join(a.t.services(a.client), ", ")
	var by []string
	for _, p := range f.Steps[i].Policies {
		by = append(by, p.String())
	}
	if len(by) == 0 {
		return fmt.Sprintf("; no policy allows %s", client)
	}
	return fmt.Sprintf("; policies for %s: %s", client, strings.Join(by, ", "))
}

// verdict converts the outcome. If a cluster does not accept a connection, it is closed; a request
// gets a response.
func (a *about) verdict() string {
	switch a.trace.Outcome {
	case match.Accepted, match.Forwarded:
		return VerdictAllowed
	case match.Answered:
		if a.trace.Status >= 400 {
			return VerdictDenied
		}
		return VerdictAllowed
	case match.Denied, match.NoHost, match.NoRoute:
		return VerdictDenied
	case match.NoCluster:
		if a.trace.Status != 0 {
			return VerdictDenied
		}
	}
	return VerdictClosed
}

// closedAt returns the name of a filter chain criterion.
func closedAt(l match.Level) string {
	switch {
	case l >= match.LevelDirectSourceIP && l <= match.LevelSourcePort:
		return "source"
	case l >= match.LevelDestinationPort && l <= match.LevelApplicationProtocol:
		return stepName(l)
	}
	return ""
}

// stepName returns the name of a step: Envoy's field name in the singular.
func stepName(l match.Level) string {
	switch l {
	case match.LevelOriginalDst:
		return "original-destination"
	case match.LevelServerName:
		return "server-name"
	case match.LevelApplicationProtocol:
		return "application-protocol"
	case match.LevelSourcePort:
		return "source-port"
	}
	return strings.ReplaceAll(l.String(), "_", "-")
}

func (a *about) step(s *match.Step) FlowStep {
	out := FlowStep{
		At: stepName(s.Level), Saw: s.Input, Chose: s.Choice, Candidates: s.Candidates, Eliminated: []Eliminated{},
		More: s.More, Note: s.Note, Policies: a.policiesBehind(s),
	}
	for _, e := range s.Eliminated {
		out.Eliminated = append(out.Eliminated, Eliminated(e))
	}
	return out
}

func (a *about) target(t *match.Target, listener string) FlowCluster {
	out := FlowCluster{Name: t.Cluster, Weight: t.Weight, Total: t.Total, Endpoints: len(t.Endpoints) + t.More,
		Addresses: t.Endpoints}
	if out.Addresses == nil {
		out.Addresses = []string{}
	}
	facts := a.p.cluster(t.Cluster)
	out.Request, out.Missing = t.Request, facts == nil
	out.Pinned = facts != nil && facts.pinned && isPassthrough(listener)
	return out
}

// logs adds the access logs and a step for them.
func (a *about) logs(f *Way) {
	step := FlowStep{At: stepName(match.LevelAccessLog), Eliminated: []Eliminated{}}
	var sinks []string
	for _, l := range a.trace.Logs {
		f.AccessLogs = append(f.AccessLogs, api.FlowLog{Listener: l.Position.Resource, Pointer: l.Position.Pointer,
			Name: l.Name,
			Sink: l.Sink, Conditional: l.Conditional})
		if !slices.Contains(sinks, l.Sink) {
			sinks = append(sinks, l.Sink)
		}
	}
	if len(sinks) == 0 {
		return
	}
	step.Chose = strings.Join(sinks, ", ")
	step.Policies = a.policiesBehind(&match.Step{Level: match.LevelAccessLog})
	f.Steps = append(f.Steps, step)
}

// collect sets the policies of all steps without duplicates.
func (f *Way) collect() {
	f.Policies = []api.FlowPolicy{}
	for i := range f.Steps {
		f.Policies = append(f.Policies, f.Steps[i].Policies...)
	}
	f.Policies = unique(f.Policies)
}
