// Package legacy implements HealthCheck, which MeshHealthCheck replaces: its conf, effect, and
// migration.
//
// HealthCheck policies affect the clusters of outbounds. One policy applies to each cluster; they
// are not merged. Envoy 1.36 accepts one probe for a cluster: a policy with only http probes
// services of all protocols by HTTP, and a policy with http and tcp probes only HTTP services by
// HTTP.
package legacy

import (
	"fmt"
	"strings"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/healthcheck"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/compute/successor"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/value"
)

const kind = "HealthCheck"

// Kind declares the kind and its effect.
func Kind() policy.LegacyKind {
	return toolkit.LegacyOutbound[Conf](kind, "health-checks", healthcheck.Kind, apply, migrate)
}

func apply(c *policy.Context, d *draft.Draft) {
	if !c.Rules.Legacy(kind) {
		return
	}
	probes, memo := healthcheck.NewProbes(""), map[*Conf]*healthcheck.Conf{}
	for cl := range toolkit.Clusters(d, draft.OutboundCluster) {
		if cl.Service.Kind != mesh.KindTag || toolkit.SupersedingRoute(c.Rules, cl.Service) != nil {
			continue
		}
		p := c.Rules.LegacyOutbound(kind, cl.Service.Name)
		old := toolkit.LegacyConf[Conf](p)
		if old == nil {
			continue
		}
		conf := toolkit.Once(memo, old, (*Conf).converted)
		probes.Put(cl, conf, old.probed(mesh.Protocol(cl.Service.Protocol)), func(format string, args ...any) {
			c.Host.Warn(p.Key, format, args...)
		})
	}
}

// Conf is the conf of a HealthCheck.
type Conf struct {
	healthcheck.Settings
	ReuseConnection *bool `json:"reuseConnection,omitempty"`
	TCP             *TCP  `json:"tcp,omitempty"`
	HTTP            *HTTP `json:"http,omitempty"`
}

// Fits reports whether a field applies to a protocol.
func (c *Conf) Fits(path string, p mesh.Protocol) bool { return c.converted().Fits(path, c.probed(p)) }

// TCP probes with bytes, in base64 in the document. Without Send, an established connection is
// sufficient.
type TCP struct {
	Send    []byte   `json:"send,omitempty"`
	Receive [][]byte `json:"receive,omitempty"`
}

// HTTP probes with a GET request.
type HTTP struct {
	Path                string   `json:"path,omitempty"` // Default /
	RequestHeadersToAdd []Header `json:"requestHeadersToAdd,omitempty"`
	ExpectedStatuses    []uint32 `json:"expectedStatuses,omitempty"` // Default 200
}

// Header is a header of the probe.
type Header struct {
	Header HeaderValue `json:"header"`
	Append *bool       `json:"append,omitempty"` // add instead of replace. Default false
}

// HeaderValue is a header name and its value.
type HeaderValue struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// Validate checks that times and thresholds are set and that the probes are valid.
func (c *Conf) Validate(v *resource.Validator) {
	for _, f := range []struct {
		name    string
		missing bool
		example string
	}{
		{"interval", c.Interval == nil, `a duration like "10s"`}, {"timeout", c.Timeout == nil, `a duration like "2s"`},
		{"unhealthyThreshold", c.UnhealthyThreshold == nil, "1 or more"},
		{"healthyThreshold", c.HealthyThreshold == nil, "1 or more"},
	} {
		if f.missing {
			v.Field(f.name).Faultf("%s is missing: give %s", f.name, f.example)
		}
	}
	if c.EventLogPath != "" {
		healthcheck.ValidatePath(v.Field("eventLogPath"), c.EventLogPath, "the path of the file")
	}
	if c.TCP != nil {
		c.TCP.converted().Check(v.Field("tcp"))
	}
	if c.HTTP != nil {
		c.HTTP.validate(v.Field("http"))
	}
}

func (h *HTTP) validate(v *resource.Validator) {
	conf := h.converted()
	conf.RequestHeadersToAdd = nil // has other field paths; checked below
	conf.Check(v)
	list := v.Field("requestHeadersToAdd")
	if !toolkit.AtMost(list, len(h.RequestHeadersToAdd), healthcheck.MaxHeaders, "headers") {
		return
	}
	seen := map[string]bool{}
	for i, h := range h.RequestHeadersToAdd {
		at := list.Index(i).Field("header")
		toolkit.CheckHeader(at.Field("key"), at.Field("value"), h.value(), seen, healthcheck.NoHost, healthcheck.ValidateText)
	}
}

// value returns the header with the name in lower case.
func (h *Header) value() toolkit.HeaderValue {
	return toolkit.HeaderValue{Name: strings.ToLower(h.Header.Key), Value: h.Header.Value}
}

// probed returns the protocol by which a service of protocol p is probed.
func (c *Conf) probed(p mesh.Protocol) mesh.Protocol {
	switch {
	case c.HTTP == nil || c.TCP != nil || p == mesh.ProtocolHTTP || p == mesh.ProtocolHTTP2:
		return p
	case p == mesh.ProtocolGRPC:
		return mesh.ProtocolHTTP2
	}
	return mesh.ProtocolHTTP
}

// converted returns the conf of a MeshHealthCheck with the same values.
func (c *Conf) converted() *healthcheck.Conf {
	out := &healthcheck.Conf{
		Settings:        c.Settings,
		ReuseConnection: c.ReuseConnection, TCP: &healthcheck.TCP{Disabled: new(true)},
		HTTP: &healthcheck.HTTP{Disabled: new(true)}, GRPC: &healthcheck.GRPC{Disabled: new(true)},
	}
	if c.TCP != nil || c.HTTP == nil {
		out.TCP = toolkit.Or(c.TCP, TCP{}).converted()
	}
	if c.HTTP != nil {
		out.HTTP = c.HTTP.converted()
	}
	return out
}

func (t TCP) converted() *healthcheck.TCP { return &healthcheck.TCP{Send: t.Send, Receive: t.Receive} }

func (h *HTTP) converted() *healthcheck.HTTP {
	out := &healthcheck.HTTP{ExpectedStatuses: h.ExpectedStatuses}
	if h.Path != "" {
		out.Path = &h.Path
	}
	if len(h.RequestHeadersToAdd) > 0 {
		out.RequestHeadersToAdd = &toolkit.HeaderValues{}
	}
	for _, h := range h.RequestHeadersToAdd {
		out.RequestHeadersToAdd.Put(h.value(), toolkit.Or(h.Append, false))
	}
	return out
}

// migrate returns a MeshHealthCheck for each HealthCheck.
func migrate(in *policy.MigrateInput) policy.Migration {
	plan := successor.NewPlan(in, successor.PlanOptions{Kinds: []string{healthcheck.Kind},
		SupersededBy: toolkit.SupersededByAny(in, healthcheck.Kind)})
	return policy.Migration{Without: plan.Without, Changes: changes(),
		Policies: toolkit.MigrateOutbound(in, plan, healthcheck.Kind, migrated, override)}
}

// migrated returns the conf of the MeshHealthCheck that replaces a HealthCheck.
func migrated(old *Conf, notes *[]string) *healthcheck.Conf {
	conf := old.converted()
	conf.GRPC, conf.TCP.Disabled = &healthcheck.GRPC{Disabled: new(true)}, new(old.TCP == nil && old.HTTP != nil)
	conf.HTTP.Disabled = new(old.HTTP == nil)
	if old.HTTP != nil && old.TCP == nil {
		successor.AddNote(notes, "MeshHealthCheck uses HTTP only for services of protocol http and http2, so services of "+
			"other protocols are no longer probed; set tcp or grpc for them")
	}
	return conf
}

// override sets the fields that a policy with lower precedence sets to their defaults if possible,
// and notes the others, because targetRef policies are merged.
func override(c, weak *healthcheck.Conf, notes *[]string) {
	toolkit.Override(&c.HealthyPanicThreshold, weak.HealthyPanicThreshold, value.NewDecimal(50))
	toolkit.Override(&c.FailTrafficOnPanic, weak.FailTrafficOnPanic, false)
	toolkit.Override(&c.AlwaysLogHealthCheckFailures, weak.AlwaysLogHealthCheckFailures, false)
	toolkit.Override(&c.ReuseConnection, weak.ReuseConnection, true)
	toolkit.Override(&c.HTTP.Path, weak.HTTP.Path, "/")
	if len(c.HTTP.ExpectedStatuses) == 0 && len(weak.HTTP.ExpectedStatuses) > 0 {
		c.HTTP.ExpectedStatuses = []uint32{200}
	}
	var inherited []string
	for _, f := range []struct {
		field     string
		inherited bool
	}{
		{"initialJitter", c.InitialJitter == nil && weak.InitialJitter != nil},
		{"intervalJitter", c.IntervalJitter == nil && weak.IntervalJitter != nil},
		{"intervalJitterPercent", c.IntervalJitterPercent == nil && weak.IntervalJitterPercent != nil},
		{"noTrafficInterval", c.NoTrafficInterval == nil && weak.NoTrafficInterval != nil},
		{"eventLogPath", c.EventLogPath == "" && weak.EventLogPath != ""},
		{"tcp.send", len(c.TCP.Send) == 0 && len(weak.TCP.Send) > 0},
		{"tcp.receive", len(c.TCP.Receive) == 0 && len(weak.TCP.Receive) > 0},
		{"http.requestHeadersToAdd", weak.HTTP.RequestHeadersToAdd != nil && c.HTTP.RequestHeadersToAdd == nil},
	} {
		if f.inherited {
			inherited = append(inherited, f.field)
		}
	}
	if len(inherited) > 0 {
		successor.AddNote(notes,
			fmt.Sprintf("a policy with lower precedence sets %s, and merging cannot unset it: set it here too, "+
				"or set it only for the services that need it", strings.Join(inherited, ", ")))
	}
}

// changes explains the differences between the config of MeshHealthCheck and HealthCheck.
func changes() []policy.Change {
	const at, explicit = "Cluster/*/healthChecks/0", "Envoy's default, set explicitly"
	const weaker = "a policy with lower precedence sets it, and merging cannot unset it"
	out := []policy.Change{
		{Path: at + "/httpHealthCheck/requestHeadersToAdd/**", Before: policy.Any, After: policy.Any,
			Why: "MeshHealthCheck sends the tags of the proxy with the request"},
		{Path: "Cluster/*/healthChecks", Before: policy.Any,
			Why: "MeshHealthCheck uses HTTP only for services of protocol http and http2"},
		{Path: "Cluster/*/commonLbConfig/healthyPanicThreshold", After: policy.Any, Same: true, Why: explicit},
		{Path: "Cluster/*/commonLbConfig/**", After: policy.Any, Same: true, Why: explicit},
		{Path: at + "/reuseConnection", After: "true", Same: true, Why: explicit},
		{Path: at + "/httpHealthCheck/expectedStatuses", After: policy.Any, Same: true, Why: explicit},
	}
	for _, f := range []string{
		"initialJitter", "intervalJitter", "intervalJitterPercent", "noTrafficInterval", "eventLogger", "tcpHealthCheck/**",
	} {
		out = append(out, policy.Change{Path: at + "/" + f, Before: policy.Any, After: policy.Any, Why: weaker})
	}
	return out
}
