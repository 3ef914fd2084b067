package metric

import (
	"strings"

	"github.com/nearside-mesh/nearside/agent/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// maxMatch bounds the text of a selector in characters.
const maxMatch = 256

// Validate checks the conf.
func (c *Conf) Validate(v *resource.Validator) {
	if c.Sidecar != nil && c.Sidecar.Profiles != nil {
		c.Sidecar.Profiles.validate(v.Field("sidecar").Field("profiles"))
	}
	for i, a := range toolkit.Or(c.Applications, nil) {
		a.validate(v.Field("applications").Index(i))
	}
	validateBackends(v.Field("backends"), toolkit.Or(c.Backends, nil))
}

func (p *Profiles) validate(v *resource.Validator) {
	for i, q := range toolkit.Or(p.AppendProfiles, nil) {
		v.Field("appendProfiles").Index(i).Field("name").OneOf(q.Name, profileAll, profileBasic, profileNone)
	}
	validateSelectors(v.Field("exclude"), p.Exclude)
	validateSelectors(v.Field("include"), p.Include)
}

func validateSelectors(v *resource.Validator, list *[]Selector) {
	for i, s := range toolkit.Or(list, nil) {
		if !v.Index(i).Field("type").OneOf(s.Type, selectPrefix, selectRegex, selectExact, selectContains) {
			continue
		}
		switch at := v.Index(i).Field("match"); {
		case s.Type == selectRegex:
			at.Pattern(s.Match)
		case s.Match == "":
			at.Faultf("the text is missing: give the name of a metric or a part of it")
		case len(s.Match) > maxMatch:
			at.Faultf("the text has %d characters, at most %d are allowed", len(s.Match), maxMatch)
		}
	}
}

func (a *Application) validate(v *resource.Validator) {
	v.Field("port").Port(a.Port)
	if a.Address != nil {
		v.Field("address").Host(*a.Address)
	}
}

func validateBackends(v *resource.Validator, list []Backend) {
	ports, clients := map[uint32]int{}, map[string]int{}
	for i := range list {
		b, at := &list[i], v.Index(i)
		if !at.Field("type").OneOf(b.Type, typePrometheus, typeOpenTelemetry) {
			continue
		}
		switch {
		case b.Type == typePrometheus && b.Prometheus == nil:
			at.Field("prometheus").Faultf("prometheus is missing: a backend of type Prometheus needs it; {} takes the defaults")
		case b.Type == typeOpenTelemetry && b.OpenTelemetry == nil:
			at.Field("openTelemetry").Faultf("openTelemetry is missing: a backend of type OpenTelemetry needs it")
		case b.Type == typeOpenTelemetry:
			b.OpenTelemetry.validate(at.Field("openTelemetry"))
		default:
			at = at.Field("prometheus")
			b.Prometheus.validate(at)
			if j, taken := ports[b.Prometheus.port()]; taken {
				at.Field("port").Faultf("%d is the port of backends[%d] too: one listener has one port, give each its own", b.Prometheus.port(), j)
			}
			if j, taken := clients[b.Prometheus.client()]; taken {
				at.Field("clientId").Faultf("%q is the client of backends[%d] too: give each its own", b.Prometheus.client(), j)
			}
			ports[b.Prometheus.port()], clients[b.Prometheus.client()] = i, i
		}
	}
}

func (p *Prometheus) validate(v *resource.Validator) {
	v.Field("port").Port(p.port())
	at := v.Field("path")
	switch path := p.path(); {
	case !strings.HasPrefix(path, "/"):
		at.Faultf("%q is not absolute: let it begin with /", path)
	case strings.ContainsFunc(path, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '?' || r == '#' }):
		at.Faultf("%q has a query, a fragment or a character that no path has", path)
	}
	if p.ClientID != nil && *p.ClientID == "" {
		v.Field("clientId").Faultf("the name is empty: give one or remove the field")
	}
	if p.TLS != nil && p.TLS.Mode != "" {
		v.Field("tls").Field("mode").OneOf(p.TLS.Mode, tlsDisabled, tlsProvided, tlsMesh)
	}
}

func (o *OpenTelemetry) validate(v *resource.Validator) {
	v.Field("refreshInterval").Positive(o.RefreshInterval)
	toolkit.CheckCollector(v.Field("endpoint"), o.Endpoint)
}
