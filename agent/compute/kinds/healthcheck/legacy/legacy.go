// Package legacy is HealthCheck, which MeshHealthCheck replaces: its conf, its effect and its
// migration.
//
// Its policies act on the clusters of outbounds, one on each: they are not merged. A probe of HTTP
// alone is for services of all protocols; beside one of TCP it is for those of HTTP, as Envoy 1.36
// takes one probe for a cluster.
package legacy

import (
	"fmt"
	"strings"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/healthcheck"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
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
		conf := toolkit.Once(memo, old, (*Conf).current)
		probes.Put(cl, conf, old.probed(mesh.Protocol(cl.Service.Protocol)), func(format string, args ...any) {
			c.Host.Warn(p.Key, format, args...)
		})
	}
}

// Conf says how the endpoints of a service are probed.
type Conf struct {
	// between two probes
	Interval *resource.Duration `json:"interval,omitempty" check:"positive"`
	Timeout  *resource.Duration `json:"timeout,omitempty" check:"positive"` // of a probe
	// failures until an endpoint is unhealthy
	UnhealthyThreshold *uint32 `json:"unhealthyThreshold,omitempty" check:"atLeastOne"`
	// successes until it is back
	HealthyThreshold             *uint32            `json:"healthyThreshold,omitempty" check:"atLeastOne"`
	InitialJitter                *resource.Duration `json:"initialJitter,omitempty" check:"positive"`
	IntervalJitter               *resource.Duration `json:"intervalJitter,omitempty" check:"positive"`
	IntervalJitterPercent        *uint32            `json:"intervalJitterPercent,omitempty" check:"percent"`
	HealthyPanicThreshold        *resource.Decimal  `json:"healthyPanicThreshold,omitempty" check:"percentage"`
	FailTrafficOnPanic           *bool              `json:"failTrafficOnPanic,omitempty"`
	EventLogPath                 string             `json:"eventLogPath,omitempty"`
	AlwaysLogHealthCheckFailures *bool              `json:"alwaysLogHealthCheckFailures,omitempty"`
	NoTrafficInterval            *resource.Duration `json:"noTrafficInterval,omitempty" check:"positive"`
	ReuseConnection              *bool              `json:"reuseConnection,omitempty"`
	TCP                          *TCP               `json:"tcp,omitempty"`
	HTTP                         *HTTP              `json:"http,omitempty"`
}

// TCP probes with bytes, in base64 in the document. Without Send a connection is enough.
type TCP struct {
	Send    []byte   `json:"send,omitempty"`
	Receive [][]byte `json:"receive,omitempty"`
}

// HTTP probes with a GET request.
type HTTP struct {
	Path                string   `json:"path,omitempty"` // default /
	RequestHeadersToAdd []Header `json:"requestHeadersToAdd,omitempty"`
	ExpectedStatuses    []uint32 `json:"expectedStatuses,omitempty"` // default 200
}

// Header is one of the request.
type Header struct {
	Header HeaderValue `json:"header"`
	Append *bool       `json:"append,omitempty"` // false, the default: replaces what is there
}

// HeaderValue is the name of a header and its value.
type HeaderValue struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// maxHeaders bounds the headers of a probe, as MeshHealthCheck does for each of its lists.
const maxHeaders = 16

// Validate checks that the times and thresholds are there, and the probes.
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
		c.TCP.current().Check(v.Field("tcp"))
	}
	if c.HTTP != nil {
		c.HTTP.validate(v.Field("http"))
	}
}

func (h *HTTP) validate(v *resource.Validator) {
	with := h.current()
	with.RequestHeadersToAdd = nil // their fields are elsewhere
	with.Check(v)
	list := v.Field("requestHeadersToAdd")
	if !toolkit.AtMost(list, len(h.RequestHeadersToAdd), maxHeaders, "headers") {
		return
	}
	seen := map[string]bool{}
	for i, h := range h.RequestHeadersToAdd {
		at, name := list.Index(i).Field("header"), strings.ToLower(h.Header.Key)
		at.Field("key").HeaderName(name)
		switch {
		case name == "host":
			at.Field("key").Faultf("the host of the probe is the name of the cluster: remove it")
		case seen[name]:
			at.Field("key").Faultf("the header %s is given twice: give its values in one, separated by commas",
				toolkit.Clip(name))
		}
		seen[name] = true
		at.Field("value").HeaderValue(h.Header.Value)
		healthcheck.ValidateText(at.Field("value"), h.Header.Value)
	}
}

// probed is the protocol that a service of another one is probed as.
func (c *Conf) probed(p mesh.Protocol) mesh.Protocol {
	switch {
	case c.HTTP == nil || c.TCP != nil || p == mesh.ProtocolHTTP || p == mesh.ProtocolHTTP2:
		return p
	case p == mesh.ProtocolGRPC:
		return mesh.ProtocolHTTP2
	}
	return mesh.ProtocolHTTP
}

// current is the conf of a MeshHealthCheck with the same values.
func (c *Conf) current() *healthcheck.Conf {
	out := &healthcheck.Conf{
		Interval: c.Interval, Timeout: c.Timeout, UnhealthyThreshold: c.UnhealthyThreshold,
		HealthyThreshold: c.HealthyThreshold, InitialJitter: c.InitialJitter, IntervalJitter: c.IntervalJitter,
		IntervalJitterPercent: c.IntervalJitterPercent, HealthyPanicThreshold: c.HealthyPanicThreshold,
		FailTrafficOnPanic: c.FailTrafficOnPanic, EventLogPath: c.EventLogPath,
		AlwaysLogHealthCheckFailures: c.AlwaysLogHealthCheckFailures, NoTrafficInterval: c.NoTrafficInterval,
		ReuseConnection: c.ReuseConnection, TCP: &healthcheck.TCP{Disabled: new(true)},
		HTTP: &healthcheck.HTTP{Disabled: new(true)}, GRPC: &healthcheck.GRPC{Disabled: new(true)},
	}
	if c.TCP != nil || c.HTTP == nil {
		out.TCP = toolkit.Or(c.TCP, TCP{}).current()
	}
	if c.HTTP != nil {
		out.HTTP = c.HTTP.current()
	}
	return out
}

func (t TCP) current() *healthcheck.TCP { return &healthcheck.TCP{Send: t.Send, Receive: t.Receive} }

func (h *HTTP) current() *healthcheck.HTTP {
	out := &healthcheck.HTTP{ExpectedStatuses: h.ExpectedStatuses}
	if h.Path != "" {
		out.Path = &h.Path
	}
	if len(h.RequestHeadersToAdd) > 0 {
		out.RequestHeadersToAdd = &toolkit.HeaderValues{}
	}
	for _, h := range h.RequestHeadersToAdd {
		into := &out.RequestHeadersToAdd.Set
		if toolkit.Or(h.Append, false) {
			into = &out.RequestHeadersToAdd.Add
		}
		*into = append(*into, toolkit.HeaderValue{Name: strings.ToLower(h.Header.Key), Value: h.Header.Value})
	}
	return out
}

// migrate makes a MeshHealthCheck of each HealthCheck.
func migrate(in *policy.MigrateInput) policy.Migration {
	plan := in.Plan(policy.PlanOptions{Kinds: []string{healthcheck.Kind},
		SupersededBy: toolkit.SupersededByAny(in, healthcheck.Kind)})
	return policy.Migration{Without: plan.Without, Changes: changes(),
		Policies: toolkit.MigrateOutbound(in, plan, healthcheck.Kind, converted, over)}
}

// converted says what a HealthCheck says.
func converted(old *Conf, notes *[]string) *healthcheck.Conf {
	conf := old.current()
	conf.GRPC, conf.TCP.Disabled = &healthcheck.GRPC{Disabled: new(true)}, new(old.TCP == nil && old.HTTP != nil)
	conf.HTTP.Disabled = new(old.HTTP == nil)
	if old.HTTP != nil && old.TCP == nil {
		policy.AddNote(notes, "MeshHealthCheck probes services of http and http2 alone with HTTP: those of other protocols "+
			"are not probed any more; give tcp, or grpc, for them")
	}
	return conf
}

// over gives what a weaker policy gives and has a value that says nothing, and notes the rest:
// source-destination policies are not merged.
func over(c, weak *healthcheck.Conf, notes *[]string) {
	toolkit.Give(&c.HealthyPanicThreshold, weak.HealthyPanicThreshold, resource.NewDecimal(50))
	toolkit.Give(&c.FailTrafficOnPanic, weak.FailTrafficOnPanic, false)
	toolkit.Give(&c.AlwaysLogHealthCheckFailures, weak.AlwaysLogHealthCheckFailures, false)
	toolkit.Give(&c.ReuseConnection, weak.ReuseConnection, true)
	toolkit.Give(&c.HTTP.Path, weak.HTTP.Path, "/")
	if len(c.HTTP.ExpectedStatuses) == 0 && len(weak.HTTP.ExpectedStatuses) > 0 {
		c.HTTP.ExpectedStatuses = []uint32{200}
	}
	var left []string
	for _, f := range []struct {
		field string
		left  bool
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
		if f.left {
			left = append(left, f.field)
		}
	}
	if len(left) > 0 {
		policy.AddNote(notes, fmt.Sprintf("a weaker policy gives %s, which merging cannot take away: give it here too, "+
			"or move it to the services that need it", strings.Join(left, ", ")))
	}
}

// changes explains what is written in another way.
func changes() []policy.Change {
	const at, explicit = "Cluster/*/healthChecks/0", "Envoy's default, written out"
	const weaker = "a weaker policy gives it, and merging cannot take it away"
	out := []policy.Change{
		{Path: at + "/httpHealthCheck/requestHeadersToAdd/**", Before: policy.Any, After: policy.Any,
			Why: "MeshHealthCheck sends the tags of the proxy with the request"},
		{Path: "Cluster/*/healthChecks", Before: policy.Any,
			Why: "MeshHealthCheck probes services of http and http2 alone with HTTP"},
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
