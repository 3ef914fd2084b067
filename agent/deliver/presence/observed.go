package presence

import (
	"cmp"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// observed holds the observations of one Dataplane.
type observed struct {
	envoys    map[string]*served // the running Envoys by the IDs of their processes; "" for those without one
	anonymous int                // open streams of processes without an ID
	closed    bool               // the last of these streams has closed since the agent started
	process   string             // the Envoy that has connected last, or ""
	every     bool               // its client serves without listeners

	ended   bool // its Envoy has ended, and no other one has connected
	drains  bool // between Drain and Undrain
	keeps   bool // it drains, also with another Envoy
	pending bool // it is new, and no Envoy has reported its inbounds yet

	missing []uint32        // of an earlier run: ports that its Envoy had not acknowledged
	failing map[uint32]bool // ports whose probe fails
}

// served holds the inbound listeners that one Envoy has acknowledged.
type served struct {
	known     bool // listeners is known
	listeners []string
}

// Reasons in records.
const (
	reasonEnded    = "its Envoy has ended"
	reasonDraining = "it drains, until nearside drain --undo or until a new Envoy of it connects"
	reasonKept     = "it drains, until nearside drain --undo"
	reasonEndKept  = "its Envoy has ended, and it drains until nearside drain --undo"
	reasonPending  = "its Envoy has not acknowledged the inbound yet"
	reasonProbe    = "the probe of the workload fails"
)

// restore sets the observations from a record of an earlier run.
func (x *observed) restore(s *resource.EndpointState) {
	x.process = s.Process
	switch {
	case s.State == resource.EndpointEnded:
		x.ended = true
		x.keeps = s.Reason == reasonEndKept
		x.drains = x.keeps
	case s.State == resource.EndpointDraining:
		x.drains, x.keeps = true, s.Reason == reasonKept
	case s.Reason == reasonPending:
		x.pending, x.missing = len(s.Inbounds) == 0, s.Inbounds
	default:
		for _, port := range s.Inbounds {
			x.fail(port)
		}
	}
}

func (x *observed) fail(port uint32) {
	if x.failing == nil {
		x.failing = map[uint32]bool{}
	}
	x.failing[port] = true
}

// begin records that a process has connected, and reports whether it has to be watched.
func (x *observed) begin(process string) (added bool) {
	if x.drains && !x.keeps && (process == "" && x.closed || process != "" && x.process != "" && x.process != process) {
		x.drains = false
	}
	if process == "" {
		x.anonymous++
	} else {
		x.process = process
	}
	if x.envoys[process] != nil {
		return false
	}
	if x.envoys == nil {
		x.envoys = map[string]*served{}
	}
	x.envoys[process] = &served{}
	return process != ""
}

// leave records that a stream of a process without an ID has closed.
func (x *observed) leave() {
	if x.anonymous--; x.anonymous == 0 {
		x.closed = true
	}
}

// end records that a process has ended. It reports false if that makes no difference: another Envoy
// serves the Dataplane, as after a hot restart, or the process did not serve it.
func (x *observed) end(process string) bool {
	e := x.envoys[process]
	if delete(x.envoys, process); e == nil || !e.known || x.anonymous > 0 {
		return false
	}
	for _, other := range x.envoys {
		if len(other.listeners) > 0 {
			return false
		}
	}
	x.ended, x.missing = true, nil
	return true
}

// accept records the inbound listeners that a process has acknowledged.
func (x *observed) accept(process string, listeners []string) {
	e := x.envoys[process]
	if e == nil {
		return
	}
	e.known, e.listeners = true, listeners
	x.pending, x.ended, x.missing = false, false, nil
}

// reported reports whether a client has reported its inbounds.
func (x *observed) reported() bool {
	for _, e := range x.envoys {
		if e.known {
			return true
		}
	}
	return x.every
}

// lacks returns the ports of inbounds that no Envoy has acknowledged.
func (x *observed) lacks(dp *resource.Dataplane) []uint32 {
	known := false
	var acked []string
	for _, e := range x.envoys {
		known = known || e.known
		acked = append(acked, e.listeners...)
	}
	switch {
	case x.every:
		return nil
	case !known:
		return x.missing
	}
	return lacking(dp, acked)
}

// state returns the merged state without its time, or nil if the Dataplane is ready.
func (x *observed) state(dp *resource.Dataplane) *resource.EndpointState {
	missing := x.lacks(dp)
	switch {
	case x.ended && x.keeps:
		return &resource.EndpointState{State: resource.EndpointEnded, Reason: reasonEndKept}
	case x.ended:
		return &resource.EndpointState{State: resource.EndpointEnded, Reason: reasonEnded}
	case x.drains:
		reason := reasonDraining
		if x.keeps {
			reason = reasonKept
		}
		return &resource.EndpointState{State: resource.EndpointDraining, Reason: reason, Process: x.process}
	case x.pending:
		return &resource.EndpointState{State: resource.EndpointUnready, Reason: reasonPending}
	case len(missing)+len(x.failing) > 0:
		reason := reasonProbe
		if len(missing) > 0 {
			reason = reasonPending
		}
		ports := slices.AppendSeq(slices.Clone(missing), maps.Keys(x.failing))
		slices.Sort(ports)
		return &resource.EndpointState{State: resource.EndpointUnready, Reason: reason, Inbounds: slices.Compact(ports)}
	}
	return nil
}

// noServicePort is the port of an inbound without a listener (Kuma's convention).
const noServicePort = 49151

// lacking returns the ports of inbounds whose listener is not among those acknowledged.
func lacking(dp *resource.Dataplane, acked []string) (out []uint32) {
	if dp == nil {
		return nil
	}
	for i := range dp.Networking.Inbound {
		in := &dp.Networking.Inbound[i]
		addr, err := netip.ParseAddr(cmp.Or(in.Address, dp.Networking.Address))
		if err != nil || in.Port == noServicePort || in.State == resource.InboundIgnored {
			continue
		}
		name := "inbound:" + net.JoinHostPort(addr.String(), strconv.FormatUint(uint64(in.Port), 10))
		if !slices.Contains(acked, name) && !slices.Contains(out, in.Port) {
			out = append(out, in.Port)
		}
	}
	return out
}
