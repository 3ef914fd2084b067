// Package legacy implements TrafficTrace, which MeshTrace replaces: its conf, effect, and
// migration.
//
// TrafficTrace policies select proxies and refer to a backend of Mesh.tracing.
package legacy

import (
	"cmp"
	"fmt"
	"net"
	"strconv"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/trace"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/compute/successor"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/value"
)

const kind = "TrafficTrace"

// Kind declares the kind and its effect.
func Kind() policy.LegacyKind {
	return policy.LegacyKind{
		Descriptor: resource.LegacyDescriptor(kind, "traffic-traces", "", resource.LegacyShape{
			Selectors: true, NewConf: func() resource.Conf { return new(Conf) },
		}),
		ReplacedBy: []string{trace.Kind},
		Apply:      apply,
		Migrate:    migrate,
	}
}

// Conf names the backend.
type Conf struct {
	Backend string `json:"backend,omitempty"` // of Mesh.tracing. Default its defaultBackend
}

// Validate does nothing: only the mesh defines which backends exist.
func (c *Conf) Validate(*resource.Validator) {}

func apply(c *policy.Context, d *draft.Draft) {
	p := c.Rules.LegacyProxy(kind)
	if p == nil {
		return
	}
	warn := func(format string, args ...any) { c.Host.Warn(p.Key, format, args...) }
	conf, name, why := confOf(c.View.Spec.Tracing, p)
	if why != "" {
		warn("%s", why)
		return
	}
	trace.Trace(c, d, conf, trace.Names{
		Cluster: "tracing:" + name, Origin: "tracing", Service: trace.InboundService(c),
	}, warn)
}

// confOf returns the equivalent conf of a MeshTrace for the backend of a policy, or the reason why
// there is none.
func confOf(t *resource.Tracing, p *resource.Resource) (conf *trace.Conf, name, why string) {
	if t != nil {
		name = t.DefaultBackend
	}
	if c := toolkit.LegacyConf[Conf](p); c != nil {
		name = cmp.Or(c.Backend, name)
	}
	b := t.Backend(name)
	switch {
	case name == "":
		return nil, name, "the policy has no effect: it names no backend, and tracing of the mesh has no defaultBackend"
	case b == nil:
		return nil, name, fmt.Sprintf("the policy has no effect: tracing of the mesh has no backend %q", toolkit.Clip(name))
	}
	backend, c := trace.Backend{Type: "Zipkin"}, toolkit.Or(b.Conf, resource.TracingConf{})
	if b.Type == resource.TracingDatadog {
		backend.Type = "Datadog"
		backend.Datadog = &trace.Datadog{URL: "http://" + net.JoinHostPort(c.Address, strconv.FormatUint(uint64(c.Port), 10)),
			SplitService: c.SplitService}
	} else {
		backend.Zipkin = &trace.Zipkin{URL: c.URL, TraceID128Bit: c.TraceID128Bit, SharedSpanContext: c.SharedSpanContext}
		if c.APIVersion != "" {
			backend.Zipkin.APIVersion = &c.APIVersion
		}
	}
	conf = &trace.Conf{Backends: &[]trace.Backend{backend}}
	if b.Sampling != nil {
		conf.Sampling = &trace.Sampling{Overall: b.Sampling}
	}
	var faults []resource.Fault
	if conf.Validate(resource.NewValidator("conf", &faults)); len(faults) > 0 {
		return nil, name, fmt.Sprintf("the policy has no effect: backend %q in tracing of the mesh: %s",
			toolkit.Clip(name), faults[0].Reason)
	}
	return conf, name, ""
}

// migrate returns a MeshTrace for each TrafficTrace, with the backend of Mesh.tracing.
func migrate(in *policy.MigrateInput) policy.Migration {
	some := *in
	some.Policies = nil
	for _, r := range in.Policies {
		if spec, ok := r.Spec.(*resource.LegacyPolicy); ok { // selectors of proxies compete like selectors of inbounds
			changed, copied := *spec, *r
			changed.Destinations, copied.Spec = spec.Selectors, &changed
			some.Policies = append(some.Policies, &copied)
		}
	}
	plan := successor.NewPlan(&some, successor.PlanOptions{Kinds: []string{trace.Kind}, Inbound: true,
		SupersededBy: toolkit.SupersededByAny(in, trace.Kind)})
	out := policy.Migration{Without: plan.Without, Changes: changes()}
	migrated := map[*successor.Unit]*trace.Conf{}
	for _, u := range plan.Units { // weakest first
		conf, _, why := confOf(in.Index.View.Spec.Tracing, u.Policy)
		for _, w := range u.Weaker {
			weak := migrated[w]
			if weak == nil {
				continue
			}
			if why != "" { // overrides a policy with lower precedence that traces
				successor.AddNote(&u.Notes, why+"; it disables tracing where a policy with lower precedence would trace")
				conf, why = &trace.Conf{Backends: &[]trace.Backend{}}, ""
			}
			if weak.Sampling != nil && conf.Sampling == nil && len(*conf.Backends) > 0 {
				conf.Sampling = &trace.Sampling{Overall: new(value.NewDecimal(100))}
			}
		}
		if why != "" {
			out.Without = append(out.Without, policy.WithoutSuccessor{Policy: u.Policy.Key, Why: why})
			continue
		}
		migrated[u] = conf
		out.Policies = append(out.Policies, policy.Migrated{
			Kind: trace.Kind, Name: u.Name, From: []resource.Key{u.Policy.Key}, Notes: u.Notes,
			Spec: &resource.Policy{TargetRef: &u.Target, Default: conf},
		})
	}
	return out
}

// changes explains the differences between the config of MeshTrace and TrafficTrace.
func changes() []policy.Change {
	const name = "the collector's cluster is named after its type instead of the backend"
	const tracing = "Listener/*/filterChains/*/filters/envoy.filters.network.http_connection_manager/typedConfig/tracing/"
	var out []policy.Change
	for _, path := range []string{
		"Cluster/tracing:*", "Cluster/tracing:*/**", "Cluster/meshtrace:*", "Cluster/meshtrace:*/**",
		tracing + "provider/typedConfig/collectorCluster",
	} {
		out = append(out, policy.Change{Path: path, Before: policy.Any, After: policy.Any, Same: true, Why: name})
	}
	const tags = "spans of MeshTrace have the tags kuma.mesh, kuma.zone, and kuma.workload"
	return append(out,
		policy.Change{Path: tracing + "customTags", After: policy.Any, Why: tags},
		policy.Change{Path: tracing + "customTags/**", After: policy.Any, Why: tags},
		policy.Change{Path: tracing + "provider/typedConfig/serviceName", Before: policy.Any, After: policy.Any,
			Why: "MeshTrace names the spans of all inbounds after the first service of the proxy"},
		policy.Change{Path: tracing + "overallSampling", After: policy.Any, Same: true,
			Why: "Envoy's default, set explicitly"})
}
