package match

import (
	"fmt"
	"net/netip"
	"strconv"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"

	"github.com/nearside-mesh/nearside/agent/compute/envoy"
	"github.com/nearside-mesh/nearside/agent/model/finding"
)

// walk traces one connection, with or without a request, through a config.
type walk struct {
	config *Config
	conn   *Conn
	req    *Request
	trace  *Trace

	socket   *socket
	listener *Listener
	at       finding.Position // the listener
	match    Match
	chain    finding.Position
	tls      bool // the chain terminates the connection's TLS
}

func (w *walk) step(s Step) { w.trace.Steps = append(w.trace.Steps, s) }

// end sets the outcome.
func (w *walk) end(o Outcome, at Level, flag, format string, args ...any) *Trace {
	w.trace.Outcome, w.trace.At, w.trace.Flag = o, at, flag
	w.trace.Reason = fmt.Sprintf(format, args...)
	return w.trace
}

func (w *walk) run() *Trace {
	w.config.open()
	w.socket = newSocket(w.conn)
	entry := unmap(w.conn.entry())
	i, ok := lookUp(w.config.sockets.bound, entry)
	if !ok {
		w.step(Step{Level: LevelListener, Input: entry.String()})
		return w.end(NoListener, LevelListener, "", "no listener is bound to %s", entry)
	}
	w.enter(i, entry)
	if t := w.inspect(); t != nil {
		return t
	}
	if w.listener.Message.GetUseOriginalDst().GetValue() && w.socket.restored {
		step := Step{Level: LevelOriginalDst, Input: w.socket.seen.Dst.String()}
		if j, found := lookUp(w.config.sockets.all, w.socket.seen.Dst); found && j != i {
			step.Choice = w.config.heads[j].GetName()
			step.note("handed to the listener that owns the original destination")
			w.step(step)
			w.enter(j, w.socket.seen.Dst)
			if t := w.inspect(); t != nil {
				return t
			}
		} else {
			step.Choice = w.listener.Message.GetName()
			step.note("no other listener owns the original destination")
			w.step(step)
		}
	}
	w.socket.setTransport()
	return w.choose()
}

// enter continues in the listener at an index.
func (w *walk) enter(i int, addr netip.AddrPort) {
	r := w.config.snapshot[envoy.KindListener][i]
	w.listener = w.config.listener(i)
	w.at = finding.Position{Type: envoy.KindListener.URL(), Resource: r.Name}
	position := w.at
	w.trace.Listener = &position
	w.step(Step{Level: LevelListener, Input: addr.String(), Choice: r.Name, Place: &position})
}

// inspect runs the listener filters. It returns the end of the trace, or nil.
func (w *walk) inspect() *Trace {
	step := Step{Level: LevelInspection, Input: w.conn.First.String()}
	out := w.socket.inspect(w.listener.Message, w.conn, &step)
	w.trace.Wait = w.socket.wait
	if out != Accepted {
		w.step(step)
		w.logsOfListener(false)
		m := Match{Outcome: out}
		return w.end(out, LevelInspection, "", "%s", m.outcomeText())
	}
	if step.Note != "" {
		if step.Choice = w.socket.seen.Transport; step.Choice == "" {
			step.Choice = transportRaw
		}
		w.step(step)
	}
	return nil
}

func (w *walk) choose() *Trace {
	w.match = w.listener.choose(&w.socket.seen, &w.trace.Steps)
	w.logsOfListener(w.match.Index == NoIndex)
	step := Step{Level: LevelChain}
	switch w.match.Index {
	case NoIndex:
		step.note("%s", w.match.outcomeText())
		w.step(step)
		return w.end(NoChain, w.match.At, flagNoChain, "%s", w.match.outcomeText())
	case DefaultIndex:
		w.chain = w.at.Below("defaultFilterChain")
		step.Choice = chainLabel(w.match.Chain, "default filter chain")
		step.note("no filter chain matches at %s", w.match.At)
	default:
		w.chain = w.at.Below("filterChains", strconv.Itoa(w.match.Index))
		step.Choice = ChainName(w.match.Chain, w.match.Index)
	}
	position := w.chain
	step.Place, w.trace.Chain = &position, &position
	w.step(step)
	if t := w.handshake(); t != nil {
		return t
	}
	return w.networkFilters()
}

func chainLabel(c *listenerv3.FilterChain, otherwise string) string {
	if c.GetName() != "" {
		return c.GetName()
	}
	return otherwise
}
