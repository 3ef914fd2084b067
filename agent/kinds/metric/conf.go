package metric

import (
	"cmp"

	"github.com/nearside-mesh/nearside/agent/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// Types of backends, modes of TLS, names of profiles and types of selectors.
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

// Defaults of the reference.
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

// Sidecar says which metrics of the proxy are served.
type Sidecar struct {
	Profiles      *Profiles `json:"profiles,omitempty"`
	IncludeUnused *bool     `json:"includeUnused,omitempty"` // true: also what was never counted
}

// Profiles are groups of metrics; Basic where none is given.
type Profiles struct {
	AppendProfiles *[]Profile  `json:"appendProfiles,omitempty"`
	Exclude        *[]Selector `json:"exclude,omitempty"`
	Include        *[]Selector `json:"include,omitempty"` // takes precedence over Exclude
}

// Profile names a group.
type Profile struct {
	Name string `json:"name"`
}

// Selector selects metrics by their names in Prometheus.
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

// Backend is where metrics go to. The part that belongs to Type says how.
type Backend struct {
	Type          string         `json:"type"`
	Prometheus    *Prometheus    `json:"prometheus,omitempty"`
	OpenTelemetry *OpenTelemetry `json:"openTelemetry,omitempty"`
}

// Prometheus scrapes the proxy at its address.
type Prometheus struct {
	ClientID *string `json:"clientId,omitempty"`
	Port     *uint32 `json:"port,omitempty"` // 5670 when there is none
	Path     *string `json:"path,omitempty"` // /metrics when there is none
	TLS      *TLS    `json:"tls,omitempty"`
}

// TLS is that of the listener for Prometheus.
type TLS struct {
	Mode string `json:"mode,omitempty"` // Disabled when there is none
}

// OpenTelemetry is a collector that metrics are pushed to.
type OpenTelemetry struct {
	Endpoint        string             `json:"endpoint"`
	RefreshInterval *resource.Duration `json:"refreshInterval,omitempty"`
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
