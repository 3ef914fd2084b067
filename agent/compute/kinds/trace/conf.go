package trace

import (
	"strings"

	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Types of backends.
const (
	typeZipkin        = "Zipkin"
	typeDatadog       = "Datadog"
	typeOpenTelemetry = "OpenTelemetry"
)

// Conf is the conf of a MeshTrace.
type Conf struct {
	Backends *[]Backend `json:"backends,omitempty"` // one backend, or none to disable tracing
	Sampling *Sampling  `json:"sampling,omitempty"`
	Tags     *[]Tag     `json:"tags,omitempty"`
}

// Fits reports whether a field applies to a protocol.
func (*Conf) Fits(path string, p mesh.Protocol) bool {
	return p.HTTP() || !strings.HasPrefix(path, "sampling.") && path != "tags"
}

// Backend is a collector of spans. The field for Type configures it.
type Backend struct {
	Type          string         `json:"type"`
	Zipkin        *Zipkin        `json:"zipkin,omitempty"`
	Datadog       *Datadog       `json:"datadog,omitempty"`
	OpenTelemetry *OpenTelemetry `json:"openTelemetry,omitempty"`
}

// Zipkin is a collector with Zipkin's API version 2.
type Zipkin struct {
	URL           string `json:"url"` // of the API: http://zipkin:9411/api/v2/spans
	TraceID128Bit *bool  `json:"traceId128bit,omitempty"`
	// httpJson (default) or httpProto
	APIVersion        *string `json:"apiVersion,omitempty" check:"httpJson|httpProto"`
	SharedSpanContext *bool   `json:"sharedSpanContext,omitempty"` // Default true
}

// Datadog is a Datadog agent.
type Datadog struct {
	URL string `json:"url"` // only host and port: http://datadog:8126
	// SplitService adds direction and destination to the service name of spans: web_INBOUND,
	// web_OUTBOUND_db.
	SplitService *bool `json:"splitService,omitempty"`
}

// OpenTelemetry is a collector for OTLP. One with an endpoint speaks gRPC without TLS.
type OpenTelemetry struct {
	Endpoint   string           `json:"endpoint,omitempty"`   // host or host:port. Default port 4317
	BackendRef *toolkit.OTelRef `json:"backendRef,omitempty"` // instead of Endpoint
}

// Sampling holds percentages of requests. Default 100.
type Sampling struct {
	Overall *resource.Decimal `json:"overall,omitempty" check:"percentage"` // limits the others
	Client  *resource.Decimal `json:"client,omitempty" check:"percentage"`  // of requests with x-client-trace-id
	Random  *resource.Decimal `json:"random,omitempty" check:"percentage"`  // of other requests
}

// Tag is added to spans: a literal, or the value of a request header.
type Tag struct {
	Name    string     `json:"name"`
	Literal *string    `json:"literal,omitempty"`
	Header  *HeaderTag `json:"header,omitempty"`
}

// HeaderTag uses the value of a request header. The span has no tag if there is neither the header
// nor a default.
type HeaderTag struct {
	Name    string  `json:"name"`
	Default *string `json:"default,omitempty"`
}

// checkPolicy rejects a policy without conf.
func checkPolicy(p *resource.Policy, v *resource.Validator) {
	if p.Default == nil {
		(&Conf{}).Validate(v.Field("default"))
	}
}

// Validate validates the conf.
func (c *Conf) Validate(v *resource.Validator) {
	list := v.Field("backends")
	switch {
	case c.Backends == nil:
		list.Faultf("the list is missing: give a backend, or [] to trace nothing")
	case len(*c.Backends) > 1:
		list.Faultf("%d backends are given, and Envoy supports one: remove the others", len(*c.Backends))
	case len(*c.Backends) == 1:
		(*c.Backends)[0].validate(list.Index(0))
	}
	if c.Tags != nil {
		validateTags(v.Field("tags"), *c.Tags)
	}
}

func (b *Backend) validate(v *resource.Validator) {
	missing := func(field string) {
		v.Field(field).Faultf("%s is required for a backend of type %s", field, b.Type)
	}
	if !v.Field("type").OneOf(b.Type, typeZipkin, typeDatadog, typeOpenTelemetry) {
		return
	}
	switch {
	case b.Type == typeZipkin && b.Zipkin == nil:
		missing("zipkin")
	case b.Type == typeZipkin:
		b.Zipkin.validate(v.Field("zipkin"))
	case b.Type == typeDatadog && b.Datadog == nil:
		missing("datadog")
	case b.Type == typeDatadog:
		b.Datadog.validate(v.Field("datadog").Field("url"))
	case b.OpenTelemetry == nil:
		missing("openTelemetry")
	default:
		toolkit.CheckOTel(v.Field("openTelemetry"), b.OpenTelemetry.Endpoint, b.OpenTelemetry.BackendRef)
	}
}

func (z *Zipkin) validate(v *resource.Validator) {
	at := v.Field("url")
	if z.URL == "" {
		at.Faultf("the URL of the collector is missing, such as http://zipkin:9411/api/v2/spans")
	} else if e, err := parseURL(z.URL); err != nil {
		at.Faultf("%v", err)
	} else {
		at.Host(e.Host)
		if e.path == "" || e.path[0] != '/' {
			at.Faultf("the URL has no path: add the path of the API, such as /api/v2/spans")
		}
	}
}

func (d *Datadog) validate(at *resource.Validator) {
	if d.URL == "" {
		at.Faultf("the URL of the agent is missing, such as http://datadog:8126")
		return
	}
	e, err := parseURL(d.URL)
	if err != nil {
		at.Faultf("%v", err)
		return
	}
	at.Host(e.Host)
	if e.tls {
		at.Faultf("the scheme is \"https\", and Envoy supports only http for a Datadog agent")
	}
	if !e.explicitPort {
		at.Faultf("the port is missing: add it, as in http://datadog:8126")
	}
	if e.path != "" {
		at.Faultf("the URL has the path %q, and Envoy sets the path: give only host and port", e.path)
	}
}

func validateTags(v *resource.Validator, tags []Tag) {
	seen := make(map[string]bool, len(tags))
	for i := range tags {
		t, at := &tags[i], v.Index(i)
		switch {
		case t.Name == "":
			at.Field("name").Faultf("the name of the tag is missing")
		case seen[t.Name]:
			at.Field("name").Faultf("the tag %q is given twice: remove one", t.Name)
		}
		seen[t.Name] = true
		switch {
		case (t.Literal == nil) == (t.Header == nil):
			at.Faultf("give either literal or header")
		case t.Header != nil:
			at.Field("header").Field("name").HeaderName(strings.ToLower(t.Header.Name)) // as Envoy compares
		case *t.Literal == "":
			at.Field("literal").Faultf("the literal is empty, which Envoy rejects: give a value or remove the tag")
		}
	}
}
