package toolkit

import (
	"net"
	"strconv"
	"strings"

	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// kindOTelBackend is the kind of shared OpenTelemetry collectors.
const kindOTelBackend = "MeshOpenTelemetryBackend"

// OTelBackends returns the descriptor of MeshOpenTelemetryBackend. Plugins whose backends may refer
// to one list it in Refers.
func OTelBackends() resource.Descriptor {
	return resource.Descriptor{Kind: kindOTelBackend, Plural: "meshopentelemetrybackends", Short: "motb",
		Scope: resource.ScopeMesh, New: func() resource.Spec { return new(OTelBackend) }}
}

// OTelBackend is the spec of a MeshOpenTelemetryBackend.
type OTelBackend struct {
	Endpoint *OTelEndpoint `json:"endpoint,omitempty"` // Default the proxy's host
	Protocol *string       `json:"protocol,omitempty" check:"grpc|http"`
	Env      *OTelEnv      `json:"env,omitempty"`
}

// OTelEndpoint is the address of the collector.
type OTelEndpoint struct {
	Address *string `json:"address,omitempty"` // name or IP address. Default 127.0.0.1
	Port    *uint32 `json:"port,omitempty"`    // Default 4317
	Path    *string `json:"path,omitempty"`    // prefix of the paths, for protocol http
}

// OTelEnv lets the environment of Kuma's data plane process define the collector. The agent reads
// no such variables.
type OTelEnv struct {
	Mode                 *string `json:"mode,omitempty"` // Default Optional
	Precedence           *string `json:"precedence,omitempty" check:"EnvFirst|ExplicitFirst"`
	AllowSignalOverrides *bool   `json:"allowSignalOverrides,omitempty"`
}

// Modes of OTelEnv.
const (
	envDisabled = "Disabled"
	envOptional = "Optional"
	envRequired = "Required"
)

const protocolHTTP = "http"

// Validate validates the spec.
func (b *OTelBackend) Validate(v *resource.Validator) {
	if e := b.Endpoint; e != nil {
		at := v.Field("endpoint")
		if e.Address != nil {
			at.Field("address").Host(*e.Address)
		}
		if e.Port != nil {
			at.Field("port").Port(*e.Port)
		}
		if e.Path != nil {
			b.validatePath(at.Field("path"), *e.Path)
		}
	}
	if e := b.Env; e != nil && e.Mode != nil {
		if at := v.Field("env").Field("mode"); *e.Mode == envRequired {
			at.Faultf("Required is not supported: the agent does not read OTEL_EXPORTER_OTLP_* variables of the proxies. " +
				"Give the collector in endpoint, and use Optional or Disabled")
		} else {
			at.OneOf(*e.Mode, envDisabled, envOptional)
		}
	}
}

func (b *OTelBackend) validatePath(v *resource.Validator, path string) {
	switch {
	case Or(b.Protocol, "") != protocolHTTP:
		v.Faultf("a path requires protocol http: set it, or remove the path")
	case !strings.HasPrefix(path, "/"):
		v.Faultf("%q is not absolute: it must begin with /", Clip(path))
	case strings.ContainsFunc(path, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '?' || r == '#' }):
		v.Faultf("%q contains a query, a fragment, or an invalid character", Clip(path))
	}
}

// OTelRef refers to a MeshOpenTelemetryBackend of the mesh.
type OTelRef struct {
	Kind   string            `json:"kind"`
	Labels map[string]string `json:"labels,omitempty"` // of the resource, all of which must be equal
}

// CheckOTel validates the collector of a backend: either an endpoint or a reference.
func CheckOTel(v *resource.Validator, endpoint string, ref *OTelRef) {
	switch at := v.Field("backendRef"); {
	case ref == nil:
		CheckCollector(v.Field("endpoint"), endpoint)
	case endpoint != "":
		v.Field("endpoint").Faultf("endpoint cannot be combined with backendRef: remove one of them")
	case at.Field("kind").OneOf(ref.Kind, kindOTelBackend) && len(ref.Labels) == 0:
		at.Field("labels").Faultf("the labels are missing: give labels of a %s", kindOTelBackend)
	}
}

// OTLP is the collector of a backend, resolved.
type OTLP struct {
	Collector
	HTTP bool   // OTLP over HTTP instead of gRPC
	Path string // prefix of the path of requests, for HTTP
}

// TLS reports whether the collector is reached with TLS, as in Kuma: by the port of https.
func (o *OTLP) TLS() bool { return o.HTTP && o.Port == 443 }

// URL returns the URL of a signal, such as traces, for HTTP.
func (o *OTLP) URL(signal string) string {
	scheme := "http://"
	if o.TLS() {
		scheme = "https://"
	}
	return scheme + net.JoinHostPort(o.Host, strconv.FormatUint(uint64(o.Port), 10)) +
		strings.TrimSuffix(o.Path, "/") + "/v1/" + signal
}

// ResolveOTel resolves the collector of a valid backend. warn reports fields of the resource that
// have no effect; nil to ignore them. If no resource has the labels, it returns the reason.
func ResolveOTel(c *policy.Context, endpoint string, ref *OTelRef,
	warn func(format string, args ...any)) (out OTLP, reason string) {
	if ref == nil {
		out.Collector, _ = ParseCollector(endpoint)
		return out, ""
	}
	var found *resource.Resource
	for _, r := range c.Rules.Resources(kindOTelBackend) { // sorted by name
		if !mesh.Contains(c.View.Labels(r), ref.Labels) {
			continue
		}
		if found == nil {
			found = r
		} else if warn != nil {
			warn("backendRef selects %s and %s, and the first is used; use labels of one of them", found.Key, r.Key)
			break
		}
	}
	if found == nil {
		return out, "backendRef selects no " + kindOTelBackend + " of the mesh: give labels of one"
	}
	b, ok := found.Spec.(*OTelBackend)
	if !ok {
		return out, found.Key.String() + " has no usable spec"
	}
	if b.Env != nil && Or(b.Env.Mode, envOptional) != envDisabled && warn != nil {
		warn("env of %s has no effect, because the agent does not read OTEL_EXPORTER_OTLP_* variables; "+
			"give the collector in endpoint, and use env.mode Disabled", found.Key)
	}
	e := Or(b.Endpoint, OTelEndpoint{})
	out.Collector = Collector{Host: Or(e.Address, "127.0.0.1"), Port: Or(e.Port, otlpPort)}
	out.HTTP, out.Path = Or(b.Protocol, "") == protocolHTTP, Or(e.Path, "")
	return out, ""
}
