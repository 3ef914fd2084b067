package api

import "time"

// StateDraining is the state of an [Applied] with Wait.Effective: every affected connected proxy
// has acknowledged it, but older connections may use the previous filters.
const StateDraining = "draining"

// OldProxy is a proxy whose older connections may use previous filters.
type OldProxy struct {
	Mesh string `json:"mesh"`
	Name string `json:"name"`
	// Until is when Envoy has ended these connections.
	Until time.Time `json:"until"`
	// DrainTime is how long Envoy keeps them, and Strategy how it ends them before, "gradual" or
	// "immediate". They are Envoy's --drain-time-s and --drain-strategy, or its defaults if
	// DrainUnknown says why Envoy does not report them.
	DrainTime    string `json:"drainTime"`
	Strategy     string `json:"strategy"`
	DrainUnknown string `json:"drainUnknown,omitempty"`
	// Connections is how many are left at most. It is null if they were not counted, with
	// Wait.Effective for the reason in Reason.
	Connections *int   `json:"connections"`
	Reason      string `json:"reason,omitempty"`
	// Permission is true if these connections include TCP connections whose previous permission
	// holds until they end. Permissions for requests already apply to them.
	Permission bool `json:"permission,omitempty"`
}

// DrainSettings says how an Envoy ends connections on filter chains that it has replaced.
type DrainSettings struct {
	// Time is how long they may last: --drain-time-s. Envoy closes them then.
	Time time.Duration
	// Strategy is how it ends connections with requests before that time: [Gradual] or [Immediate].
	Strategy string
	// ParentShutdown is --parent-shutdown-time-s, which bounds connections after a hot restart.
	ParentShutdown time.Duration
}

// Values of DrainSettings.Strategy. An Envoy closes an HTTP connection after a response, with
// Immediate after the next one, with Gradual with a probability that grows over the drain time.
// Envoy 1.36 closes it after the next response in both cases. See docs/xds.md.
const (
	Gradual   = "gradual"
	Immediate = "immediate"
)

// DefaultDrain is how an Envoy drains without options on its command line.
var DefaultDrain = DrainSettings{Time: 600 * time.Second, Strategy: Gradual, ParentShutdown: 900 * time.Second}

// DrainingListeners counts the listeners of an Envoy that are not in a steady state.
type DrainingListeners struct {
	Listeners int // replaced or removed listeners that drain
	Chains    int // filter chains that drain because only they were replaced
	Warming   int // listeners that are not in use yet because something that they need is missing
}
