package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/compute/match"
	"github.com/nearside-mesh/nearside/agent/model/api"
)

// FlowEffect is something that a proxy may do to some connections or requests on the path.
type FlowEffect struct {
	Kind    string  `json:"kind"`             // abort, delay, bandwidth, rate-limit, timeout, or retry
	Percent float64 `json:"percent"`          // of connections or requests
	Status  uint32  `json:"status,omitempty"` // status of the response that Envoy generates
	Text    string  `json:"text"`             // "10 % aborted with 503"
	// Policies are the policies behind the effect; empty if it is a default.
	Policies []api.FlowPolicy `json:"policies"`
}

// String returns the text with the policies.
func (e *FlowEffect) String() string {
	text := e.Text
	for i, p := range e.Policies {
		text += [...]string{" by ", ", "}[min(i, 1)] + p.String()
	}
	return text
}

// Upstream is a request in the form that a cluster receives.
type Upstream = match.Upstream

// FlowMirror is a cluster that receives a copy of the request.
type FlowMirror struct {
	Cluster string    `json:"cluster"`
	Percent float64   `json:"percent"`           // of requests
	Missing bool      `json:"missing,omitempty"` // the config has no such cluster
	Request *Upstream `json:"request"`           // as sent to the cluster
}

// String describes the share of requests and the cluster.
func (m *FlowMirror) String() string {
	text := fmt.Sprintf("%s of the requests -> %s", match.PercentText(m.Percent), m.Cluster)
	if m.Missing {
		text += " (the cluster does not exist)"
	}
	return text
}

// FlowWait describes a client that sends nothing, such as one that waits for the server to send
// first.
type FlowWait struct {
	Filter string `json:"filter"`          // the listener filter that waits for bytes of the client
	After  string `json:"after,omitempty"` // timeout of the filter, such as "15s"; "": none
	Closes bool   `json:"closes"`          // the connection is closed after the timeout; otherwise it continues
}

// String completes a sentence about the client.
func (w *FlowWait) String() string {
	switch {
	case w.After == "":
		return fmt.Sprintf("waits indefinitely at %s", w.Filter)
	case w.Closes:
		return fmt.Sprintf("waits %s at %s, and then its connection is closed", w.After, w.Filter)
	}
	return fmt.Sprintf("waits %s at %s, and then continues without inspection", w.After, w.Filter)
}

// effects adds the effects of the path with the policies behind them.
func (a *about) effects(f *Way) {
	tr := a.trace
	f.Location = tr.Location
	for i := range tr.Effects {
		e := &tr.Effects[i]
		out := FlowEffect{Kind: string(e.Kind), Percent: e.Percent, Status: e.Status, Text: e.Text,
			Policies: []api.FlowPolicy{}}
		for p := range a.t.plugins() {
			if slices.Contains(p.Effects, e.Kind) {
				for _, d := range p.Kinds {
					out.Policies = append(out.Policies, originsOf(a.merged(d.Kind))...)
				}
				for _, l := range p.Legacy {
					out.Policies = append(out.Policies, originsOf(a.merged(l.Kind))...)
				}
			}
		}
		if s := &f.Steps[e.Step]; s.At == stepName(match.LevelHTTPFilter) || s.At == stepName(match.LevelNetworkFilter) &&
			e.Kind == match.EffectRateLimit {
			out.Policies = append(out.Policies, s.Policies...)
		}
		out.Policies = unique(out.Policies)
		f.Effects = append(f.Effects, out)
	}
	for _, m := range tr.Mirrors {
		f.Mirrors = append(f.Mirrors,
			FlowMirror{Cluster: m.Cluster, Percent: m.Percent, Missing: m.Place == nil, Request: m.Request})
	}
}

// disturbances returns texts for the faults and limits, which clients notice.
func (f *Way) disturbances() []string {
	var out []string
	for i := range f.Effects {
		switch e := &f.Effects[i]; e.Kind {
		case string(match.EffectTimeout), string(match.EffectRetry):
		default:
			if e.Status == 0 || e.Status != f.Status { // otherwise it is the reason already
				out = append(out, e.String())
			}
		}
	}
	return out
}

// wait returns the delay of a client that waits for the server to send first, or nil if there is
// none. Its connection closes after the delay if the filter closes it or nothing accepts it.
func (a *about) wait(tr *match.Trace) *FlowWait {
	if tr.Wait == nil {
		return nil
	}
	w := &FlowWait{Filter: tr.Wait.Filter, Closes: tr.Wait.Closes ||
		tr.Outcome != match.Forwarded && tr.Outcome != match.Accepted && tr.Outcome != match.TimedOut}
	if tr.Wait.After > 0 {
		w.After = tr.Wait.After.String()
	}
	return w
}

// explainSilence adds what happens to a client that sends nothing. A proxy begins its TLS handshake
// with another proxy at once, so there is no such delay.
func (a *about) explainSilence(f *Way, conn *match.Conn) {
	if a.client != nil && (a.in.req != nil || conn.First == match.TLSHello) {
		return
	}
	if conn.First == match.ServerFirst {
		if f.Wait = a.wait(a.trace); f.Wait != nil && cmp.Or(a.trace.Outcome, match.Forwarded) != match.TimedOut {
			f.Reason += "; the client " + f.Wait.String()
		}
		return
	}
	silent := *conn
	silent.First, silent.SNI, silent.ALPN = match.ServerFirst, "", nil
	f.Wait = a.wait(a.p.trace(&silent, nil))
	switch {
	case f.Wait == nil:
	case a.in.req == nil && conn.First == match.PlainBytes:
		f.Reason += "; a client that waits for the server to speak " + f.Wait.String()
	case !f.Wait.Closes:
		f.Reason += fmt.Sprintf("; a client that sends nothing for %s is not inspected", f.Wait.After)
	}
}

// appendDisturbances adds the faults and limits of the servers to the reason, without duplicates.
func (f *Flow) appendDisturbances() {
	var said []string
	for i := range f.Servers {
		s := &f.Servers[i]
		if s.Verdict != VerdictAllowed {
			continue
		}
		for _, d := range s.disturbances() {
			if !slices.Contains(said, d) {
				said = append(said, d)
				f.Reason += fmt.Sprintf("; %s at %s", d, s.Dataplane.Name)
			}
		}
		if s.Wait != nil && !strings.Contains(f.Reason, s.Wait.String()) {
			f.Reason += fmt.Sprintf("; at %s, a client that waits for the server to speak %s", s.Dataplane.Name, s.Wait)
		}
	}
}
