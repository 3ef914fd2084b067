// Package kinds lists every kind of resource that the agent knows. The list of policies is the
// order in which they act on a proxy's draft.
package kinds

import (
	"fmt"

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

// All returns the descriptors of every kind: the mesh itself, its policies in the order in which
// they act, and what policies refer to.
func All() []resource.Descriptor {
	out := append(resource.Core(), Policies()...)
	for _, r := range Plugins() {
		out = append(out, r.Refers...)
	}
	return out
}

// Policies returns the descriptors of the policy kinds in the order in which they act, each legacy
// kind behind those that replace it.
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

// Plugins returns the plugins in the order in which they act.
func Plugins() []policy.Plugin {
	return []policy.Plugin{
		// Routes come first: what acts on a route or a split cluster needs to find it.
		route.Plugin(trafficroute.Kind()),
		// Passthrough makes chains and clusters that the kinds below then act on.
		passthrough.Plugin(),
		// What shapes connections and requests. These are independent of each other.
		meshtls.Plugin(),
		loadbalancing.Plugin(),
		timeout.Plugin(timeoutlegacy.Kind()),
		circuitbreaker.Plugin(circuitbreakerlegacy.Kind()),
		healthcheck.Plugin(healthchecklegacy.Kind()),
		retry.Plugin(retrylegacy.Kind()),
		faultinjection.Plugin(faultinjectionlegacy.Kind()),
		ratelimit.Plugin(ratelimitlegacy.Kind()),
		// Permission stands behind what answers by itself, as the order of HTTP filters has it.
		trafficpermission.Plugin(trafficpermissionlegacy.Kind()),
		// Observation sees what the kinds above have made.
		metric.Plugin(),
		trace.Plugin(tracelegacy.Kind()),
		accesslog.Plugin(accessloglegacy.Kind()),
		// Patches come last, so that they can change all that was made.
		proxypatch.Plugin(proxytemplate.Kind()),
	}
}

// Registry returns a new registry of all kinds. It panics when the list above contradicts itself,
// which no input can bring about and a test excludes.
func Registry() *resource.Registry {
	r, err := resource.NewRegistry(All()...)
	if err != nil {
		panic(fmt.Sprintf("the list of kinds is wrong: %v", err))
	}
	return r
}
