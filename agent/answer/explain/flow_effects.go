package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/compute/match"
	"github.com/nearside-mesh/nearside/agent/model/api"
)

// FlowEffect is what may happen on the way through a proxy to some of the connections or requests
// that take it.
type FlowEffect struct {
	Kind    string  `json:"kind"`             // abort, delay, bandwidth, rate-limit, timeout or retry
	Percent float64 `json:"percent"`          // of the connections or requests
	Status  uint32  `json:"status,omitempty"` // of the response that Envoy gives then
	Text    string  `json:"text"`             // "10 % aborted with 503"
	// Policies are what it follows from, empty where it is what holds without a policy.
	Policies []api.FlowPolicy `json:"policies"`
}

// String is the effect with its policies.
func (e *FlowEffect) String() string {
	text := e.Text
	for i, p := range e.Policies {
		text += [...]string{" by ", ", "}[min(i, 1)] + p.String()
	}
	return text
}

// Upstream is a request as a cluster gets it.
type Upstream = match.Upstream

// FlowMirror is a cluster that gets a copy of the request.
type FlowMirror struct {
	Cluster string    `json:"cluster"`
	Percent float64   `json:"percent"`           // of the requests
	Missing bool      `json:"missing,omitempty"` // the config has no such cluster
	Request *Upstream `json:"request"`           // as it gets there
}

// String says how many requests go where.
func (m *FlowMirror) String() string {
	text := fmt.Sprintf("%s of the requests -> %s", match.PercentText(m.Percent), m.Cluster)
	if m.Missing {
		text += " (there is no such cluster)"
	}
	return text
}

// FlowWait is what becomes of a client that waits for the server to speak first.
type FlowWait struct {
	Filter string `json:"filter"`          // the listener filter that waits for bytes of the client
	After  string `json:"after,omitempty"` // when Envoy gives up, as in "200ms"; "" for never
	Closes bool   `json:"closes"`          // the connection is closed then; else it goes on
}

// String says it of a client.
func (w *FlowWait) String() string {
	switch {
	case w.After == "":
		return fmt.Sprintf("waits at %s without an end", w.Filter)
	case w.Closes:
		return fmt.Sprintf("waits %s at %s and is closed then", w.After, w.Filter)
	}
	return fmt.Sprintf("waits %s at %s and goes on then", w.After, w.Filter)
}

// effects adds what may happen on the way, each with what it follows from.
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

// disturbances are the effects that a client notices, in words: faults and limits.
func (f *Way) disturbances() []string {
	var out []string
	for i := range f.Effects {
		switch e := &f.Effects[i]; e.Kind {
		case string(match.EffectTimeout), string(match.EffectRetry):
		default:
			if e.Status == 0 || e.Status != f.Status { // else it is the reason itself
				out = append(out, e.String())
			}
		}
	}
	return out
}

// wait says what becomes of a client that waits for the server to speak first, from the way of one;
// nil where nothing holds it up. It is closed in the end where it is let go on and nothing takes
// it.
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

// silence adds what becomes of a client that waits for the server, to the way of one that does so
// or of one that sends bytes of its own.
func (a *about) silence(f *Way, conn *match.Conn) {
	who := "the client"
	tr := a.trace
	switch {
	case a.in.req != nil || conn.First != match.PlainBytes && conn.First != match.ServerFirst:
		return
	case conn.First == match.PlainBytes:
		silent := *conn
		silent.First = match.ServerFirst
		who, tr = "a client that waits for the server to speak", a.p.trace(&silent, nil)
	}
	if f.Wait = a.wait(tr); f.Wait != nil && cmp.Or(tr.Outcome, match.Forwarded) != match.TimedOut ||
		f.Wait != nil && who != "the client" {
		f.Reason += "; " + who + " " + f.Wait.String()
	}
}

// disturb adds what servers do to some of the requests to the reason, each once.
func (f *Flow) disturb() {
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
			f.Reason += fmt.Sprintf("; at %s a client that waits for the server to speak %s", s.Dataplane.Name, s.Wait)
		}
	}
}
