package metric

import (
	"cmp"
	"strings"

	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Types of backends, TLS modes, names of profiles, and types of selectors.
const (
	typePrometheus    = "Prometheus"
	typeOpenTelemetry = "OpenTelemetry"

	tlsDisabled = "Disabled"
	tlsProvided = "ProvidedTLS"
	tlsMesh     = "ActiveMTLSBackend"

	profileAll   = "All"
	profileBasic = "Basic"
	profileNone  = "None"

	selectPrefix   = "Prefix"
	selectRegex    = "Regex"
	selectExact    = "Exact"
	selectContains = "Contains"
)

// Kuma's defaults.
const (
	defaultPort   = 5670
	defaultPath   = "/metrics"
	defaultClient = "default-backend"
)

// Conf is the conf of a MeshMetric.
type Conf struct {
	Sidecar      *Sidecar       `json:"sidecar,omitempty"`
	Applications *[]Application `json:"applications,omitempty"`
	Backends     *[]Backend     `json:"backends,omitempty"`
}

// Sidecar selects the metrics of the proxy that are served.
type Sidecar struct {
	Profiles      *Profiles `json:"profiles,omitempty"`
	IncludeUnused *bool     `json:"includeUnused,omitempty"` // include metrics that were never updated
}

// Profiles are groups of metrics. Default Basic.
type Profiles struct {
	AppendProfiles *[]Profile  `json:"appendProfiles,omitempty"`
	Exclude        *[]Selector `json:"exclude,omitempty"`
	Include        *[]Selector `json:"include,omitempty"` // takes precedence over Exclude
}

// Profile names a group of metrics.
type Profile struct {
	Name string `json:"name"`
}

// Selector selects metrics by their Prometheus names.
type Selector struct {
	Type  string `json:"type"`
	Match string `json:"match"`
}

// Application serves metrics of the workload.
type Application struct {
	Name    *string `json:"name,omitempty"`
	Path    *string `json:"path,omitempty"`
	Address *string `json:"address,omitempty"`
	Port    uint32  `json:"port"`
}

// Backend is a destination of metrics. The field for Type configures it.
type Backend struct {
	Type          string         `json:"type"`
	Prometheus    *Prometheus    `json:"prometheus,omitempty"`
	OpenTelemetry *OpenTelemetry `json:"openTelemetry,omitempty"`
}

// Prometheus scrapes the proxy at its address.
type Prometheus struct {
	ClientID *string `json:"clientId,omitempty"`
	Port     *uint32 `json:"port,omitempty"` // Default 5670
	Path     *string `json:"path,omitempty"` // Default /metrics
	TLS      *TLS    `json:"tls,omitempty"`
}

// TLS configures the TLS of the listener for Prometheus.
type TLS struct {
	Mode string `json:"mode,omitempty"` // Default Disabled
}

// OpenTelemetry is a collector to which metrics are pushed.
type OpenTelemetry struct {
	Endpoint        string             `json:"endpoint,omitempty"`
	BackendRef      *toolkit.OTelRef   `json:"backendRef,omitempty"` // instead of Endpoint
	RefreshInterval *resource.Duration `json:"refreshInterval,omitempty" check:"positive"`
}

func (p *Prometheus) port() uint32   { return toolkit.Or(p.Port, defaultPort) }
func (p *Prometheus) path() string   { return toolkit.Or(p.Path, defaultPath) }
func (p *Prometheus) client() string { return toolkit.Or(p.ClientID, defaultClient) }

func (p *Prometheus) mode() string {
	if p.TLS == nil {
		return tlsDisabled
	}
	return cmp.Or(p.TLS.Mode, tlsDisabled)
}

// maxMatch limits the length of a selector's match in characters.
const maxMatch = 256

// Validate validates the conf.
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
			at.Faultf("the value is missing: give a metric name or a substring of one")
		case len(s.Match) > maxMatch:
			at.Faultf("the value has %d characters, and at most %d are allowed", len(s.Match), maxMatch)
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
			at.Field("prometheus").Faultf("prometheus is required for a backend of type Prometheus; {} selects the defaults")
		case b.Type == typeOpenTelemetry && b.OpenTelemetry == nil:
			at.Field("openTelemetry").Faultf("openTelemetry is required for a backend of type OpenTelemetry")
		case b.Type == typeOpenTelemetry:
			b.OpenTelemetry.validate(at.Field("openTelemetry"))
		default:
			at = at.Field("prometheus")
			b.Prometheus.validate(at)
			if j, taken := ports[b.Prometheus.port()]; taken {
				at.Field("port").Faultf("%d is already the port of backends[%d]: give another port",
					b.Prometheus.port(), j)
			}
			if j, taken := clients[b.Prometheus.client()]; taken {
				at.Field("clientId").Faultf("%q is already the client of backends[%d]: give another one", b.Prometheus.client(), j)
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
		at.Faultf("%q is not absolute: it must begin with /", path)
	case strings.ContainsFunc(path, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '?' || r == '#' }):
		at.Faultf("%q contains a query, a fragment, or an invalid character", path)
	}
	if p.ClientID != nil && *p.ClientID == "" {
		v.Field("clientId").Faultf("the name is empty: give one or remove the field")
	}
	if p.TLS != nil && p.TLS.Mode != "" {
		v.Field("tls").Field("mode").OneOf(p.TLS.Mode, tlsDisabled, tlsProvided, tlsMesh)
	}
}

func (o *OpenTelemetry) validate(v *resource.Validator) {
	toolkit.CheckOTel(v, o.Endpoint, o.BackendRef)
}
