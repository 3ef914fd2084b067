// Package kinds lists every resource kind of the agent. Policies apply to a proxy's draft in the
// order of the list.
package kinds

import (
	"fmt"
	"slices"

	"github.com/nearside-mesh/nearside/agent/compute/kinds/accesslog"
	accessloglegacy "github.com/nearside-mesh/nearside/agent/compute/kinds/accesslog/legacy"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/circuitbreaker"
	circuitbreakerlegacy "github.com/nearside-mesh/nearside/agent/compute/kinds/circuitbreaker/legacy"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/faultinjection"
	faultinjectionlegacy "github.com/nearside-mesh/nearside/agent/compute/kinds/faultinjection/legacy"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/healthcheck"
	healthchecklegacy "github.com/nearside-mesh/nearside/agent/compute/kinds/healthcheck/legacy"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/loadbalancing"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/meshtls"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/metric"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/passthrough"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/proxypatch"
	proxytemplate "github.com/nearside-mesh/nearside/agent/compute/kinds/proxypatch/legacy"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/ratelimit"
	ratelimitlegacy "github.com/nearside-mesh/nearside/agent/compute/kinds/ratelimit/legacy"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/retry"
	retrylegacy "github.com/nearside-mesh/nearside/agent/compute/kinds/retry/legacy"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/route"
	trafficroute "github.com/nearside-mesh/nearside/agent/compute/kinds/route/legacy"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/timeout"
	timeoutlegacy "github.com/nearside-mesh/nearside/agent/compute/kinds/timeout/legacy"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/trace"
	tracelegacy "github.com/nearside-mesh/nearside/agent/compute/kinds/trace/legacy"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/trafficpermission"
	trafficpermissionlegacy "github.com/nearside-mesh/nearside/agent/compute/kinds/trafficpermission/legacy"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// All returns the descriptors of every kind: the mesh, its policies in order of application, and
// the kinds that policies refer to.
func All() []resource.Descriptor {
	out := append(resource.Core(), Policies()...)
	for _, r := range Plugins() {
		for _, d := range r.Refers { // several plugins may refer to one kind
			if !slices.ContainsFunc(out, func(o resource.Descriptor) bool { return o.Kind == d.Kind }) {
				out = append(out, d)
			}
		}
	}
	return out
}

// Policies returns the descriptors of the policy kinds in order of application. Legacy kinds follow
// the kinds that replace them.
func Policies() []resource.Descriptor {
	var out []resource.Descriptor
	for _, r := range Plugins() {
		out = append(out, r.Kinds...)
		for _, l := range r.Legacy {
			out = append(out, l.Descriptor)
		}
	}
	return out
}

// Plugins returns the plugins in order of application.
func Plugins() []policy.Plugin {
	return []policy.Plugin{
		// Routes come first, because other kinds edit the routes and split clusters that they
		// create.
		route.Plugin(trafficroute.Kind()),
		// Passthrough creates chains and clusters that the following kinds edit.
		passthrough.Plugin(),
		// These kinds configure connections and requests, independently of each other.
		meshtls.Plugin(),
		loadbalancing.Plugin(),
		timeout.Plugin(timeoutlegacy.Kind()),
		circuitbreaker.Plugin(circuitbreakerlegacy.Kind()),
		healthcheck.Plugin(healthchecklegacy.Kind()),
		retry.Plugin(retrylegacy.Kind()),
		faultinjection.Plugin(faultinjectionlegacy.Kind()),
		ratelimit.Plugin(ratelimitlegacy.Kind()),
		// HTTP filters of permissions must follow those that respond directly.
		trafficpermission.Plugin(trafficpermissionlegacy.Kind()),
		// Observability applies to everything that the previous kinds created.
		metric.Plugin(),
		trace.Plugin(tracelegacy.Kind()),
		accesslog.Plugin(accessloglegacy.Kind()),
		// Patches come last, so that they can change everything.
		proxypatch.Plugin(proxytemplate.Kind()),
	}
}

// Registry returns a new registry of all kinds. It panics if the list is inconsistent, which a test
// excludes.
func Registry() *resource.Registry {
	r, err := resource.NewRegistry(All()...)
	if err != nil {
		panic(fmt.Sprintf("inconsistent list of kinds: %v", err))
	}
	return r
}
