package redirects

import (
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nearside-mesh/nearside/agent/model/api"
)

// States of clients that ask for a redirection.
const (
	stateRedirected = "redirected" // as its Dataplane asks
	stateStale      = "stale"      // a change is not in force
	stateFailed     = "failed"     // it gets no config
)

// Status counts the connected Envoys whose pods are redirected.
type Status struct {
	Redirected int    // as their Dataplanes ask
	Stale      int    // a change is not in force, but the previous redirection is
	Failed     int    // cannot be redirected; the proxy gets no config
	Probes     int    // pods with ports that their node reaches around the proxy
	Fault      string // of one of them
}

// Status returns the numbers.
func (r *Redirects) Status() (out Status) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, x := range r.proxies {
		if x.fault != nil {
			out.Fault = max(out.Fault, x.dataplane.String()+": "+x.fault.Error())
		}
		switch {
		case x.inode != 0 && x.fault == nil:
			out.Redirected++
		case x.inode != 0:
			out.Stale++
		case x.fault != nil:
			out.Failed++
		}
		if x.inode != 0 && len(x.probes) > 0 {
			out.Probes++
		}
	}
	return out
}

var podsDesc = prometheus.NewDesc("nearside_intercept_pods",
	"Connected Envoys whose Dataplanes ask for the redirection of their pod (nearside.io/redirect), by state: "+
		"redirected, stale (a change is not in force, but the previous redirection is), or failed (it gets no config).",
	[]string{"state"}, nil)

// Describe implements [prometheus.Collector].
func (r *Redirects) Describe(ch chan<- *prometheus.Desc) { ch <- podsDesc }

// Collect implements [prometheus.Collector].
func (r *Redirects) Collect(ch chan<- prometheus.Metric) {
	s := r.Status()
	for state, n := range map[string]int{stateRedirected: s.Redirected, stateStale: s.Stale, stateFailed: s.Failed} {
		ch <- prometheus.MustNewConstMetric(podsDesc, prometheus.GaugeValue, float64(n), state)
	}
}

// Problems returns a problem for each client that is not redirected as its Dataplane asks.
func (r *Redirects) Problems() (out []api.Problem) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, key := range slices.SortedFunc(maps.Keys(r.proxies), compareKeys) {
		switch x := r.proxies[key]; {
		case x.fault == nil:
		case x.inode == 0:
			out = append(out, api.Problem{Resource: x.dataplane.String(), Severity: api.SeverityError,
				Reason: "it gets no config, because its traffic cannot be redirected: " + x.fault.Error()})
		default:
			out = append(out, api.Problem{Resource: x.dataplane.String(), Severity: api.SeverityError,
				Reason: "its changed redirection is not in force, the previous one is: " + x.fault.Error()})
		}
	}
	return out
}
