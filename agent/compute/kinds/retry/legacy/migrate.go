package legacy

import (
	"time"

	"github.com/nearside-mesh/nearside/agent/compute/kinds/retry"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/compute/successor"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Effective values of unset fields.
const (
	defaultRetries = 1
	defaultBase    = 25 * time.Millisecond
	longest        = 10 // times the base
)

// migrate returns a MeshRetry for each Retry.
func migrate(in *policy.MigrateInput) policy.Migration {
	plan := successor.NewPlan(in, successor.PlanOptions{Kinds: []string{retry.Kind},
		SupersededBy: toolkit.SupersededByAny(in, retry.Kind)})
	convert := func(old *Conf, _ *[]string) *retry.Conf { return old.converted() }
	return policy.Migration{Without: plan.Without, Changes: changes(),
		Policies: toolkit.MigrateOutbound(in, plan, retry.Kind, convert, override)}
}

// override sets every field that a policy with lower precedence sets and c does not, because
// targetRef policies are merged.
func override(c, weak *retry.Conf, notes *[]string) {
	if weak.TCP != nil && c.TCP == nil {
		c.TCP = &retry.TCP{MaxConnectAttempt: new(uint32(1))}
	}
	if weak.HTTP != nil {
		if c.HTTP == nil {
			c.HTTP = &retry.HTTP{Requests: retry.Requests{NumRetries: new(uint32(0))}}
		}
		requests(&c.HTTP.Requests, &weak.HTTP.Requests)
		if len(c.HTTP.RetryOn) == 0 && len(weak.HTTP.RetryOn) > 0 {
			c.HTTP.RetryOn = retry.Conditions(defaults()...)
		}
	}
	if weak.GRPC != nil {
		if c.GRPC == nil {
			c.GRPC = &retry.GRPC{Requests: retry.Requests{NumRetries: new(uint32(0))}}
		}
		requests(&c.GRPC.Requests, &weak.GRPC.Requests)
		if len(c.GRPC.RetryOn) == 0 && len(weak.GRPC.RetryOn) > 0 && toolkit.Or(c.GRPC.NumRetries, 1) > 0 {
			c.GRPC.RetryOn = retry.Conditions("Canceled", "ResourceExhausted", "Unavailable")
			successor.AddNote(notes,
				"a policy with lower precedence sets conditions for gRPC and this one uses the defaults, of which MeshRetry "+
					"supports only Canceled, ResourceExhausted, and Unavailable, so failed connections are no longer retried")
		}
	}
}

func requests(r, weak *retry.Requests) {
	toolkit.Override(&r.NumRetries, weak.NumRetries, defaultRetries)
	toolkit.Override(&r.PerTryTimeout, weak.PerTryTimeout, resource.Duration{})
	w := weak.BackOff
	if w == nil {
		return
	}
	b := toolkit.Or(r.BackOff, retry.BackOff{})
	toolkit.Override(&b.BaseInterval, &resource.Duration{}, resource.Duration{Duration: defaultBase})
	toolkit.Override(&b.MaxInterval, &resource.Duration{}, resource.Duration{Duration: longest * b.BaseInterval.Duration})
	r.BackOff = &b
}

// changes explains the differences between the config of MeshRetry and Retry.
func changes() []policy.Change {
	const explicit = "the previous default, set explicitly"
	var out []policy.Change
	for _, at := range []string{
		"RouteConfiguration/*/virtualHosts/*/routes/*/route/retryPolicy/",
		"Listener/*/filterChains/*/filters/envoy.filters.network.http_connection_manager/typedConfig/routeConfig/" +
			"virtualHosts/*/routes/*/route/retryPolicy/",
	} {
		out = append(out,
			policy.Change{Path: at + "numRetries", After: "1", Same: true, Why: explicit},
			policy.Change{Path: at + "perTryTimeout", After: `"0s"`, Same: true, Why: explicit},
			policy.Change{Path: at + "retryBackOff", After: policy.Any, Same: true, Why: explicit},
			policy.Change{Path: at + "retryBackOff/maxInterval", After: policy.Any, Same: true, Why: explicit},
			policy.Change{Path: at + "retryOn", Before: policy.Any, After: policy.Any,
				Why: "MeshRetry does not support some default conditions of gRPC"},
		)
	}
	return append(out, policy.Change{
		Path: "Listener/*/filterChains/*/filters/envoy.filters.network.tcp_proxy/typedConfig/maxConnectAttempts", After: "1",
		Same: true, Why: explicit,
	})
}
