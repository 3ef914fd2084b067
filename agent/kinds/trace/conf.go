package trace

import "github.com/nearside-mesh/nearside/agent/resource"

// Types of backends.
const (
	typeZipkin        = "Zipkin"
	typeDatadog       = "Datadog"
	typeOpenTelemetry = "OpenTelemetry"
)

// Conf is the conf of a MeshTrace.
type Conf struct {
	Backends *[]Backend `json:"backends,omitempty"` // one, or none: then nothing is traced
	Sampling *Sampling  `json:"sampling,omitempty"`
	Tags     *[]Tag     `json:"tags,omitempty"`
}

// Backend is a collector of spans. The part that belongs to Type says where it is.
type Backend struct {
	Type          string         `json:"type"`
	Zipkin        *Zipkin        `json:"zipkin,omitempty"`
	Datadog       *Datadog       `json:"datadog,omitempty"`
	OpenTelemetry *OpenTelemetry `json:"openTelemetry,omitempty"`
}

// Zipkin is a collector that speaks Zipkin's API version 2.
type Zipkin struct {
	URL               string  `json:"url"` // of the API: http://zipkin:9411/api/v2/spans
	TraceID128Bit     *bool   `json:"traceId128bit,omitempty"`
	APIVersion        *string `json:"apiVersion,omitempty"`        // httpJson, which is the default, or httpProto
	SharedSpanContext *bool   `json:"sharedSpanContext,omitempty"` // true when there is none
}

// Datadog is a Datadog agent.
type Datadog struct {
	URL string `json:"url"` // host and port alone: http://datadog:8126
	// SplitService gives spans a service name by direction and destination: web_INBOUND, web_OUTBOUND_db.
	SplitService *bool `json:"splitService,omitempty"`
}

// OpenTelemetry is a collector that takes OTLP over gRPC, without TLS.
type OpenTelemetry struct {
	Endpoint string `json:"endpoint"` // host, or host:port; the port is 4317 when there is none
}

// Sampling is in percent of requests; 100 where there is none.
type Sampling struct {
	Overall *resource.Decimal `json:"overall,omitempty"` // limit over the others
	Client  *resource.Decimal `json:"client,omitempty"`  // of those that ask with x-client-trace-id
	Random  *resource.Decimal `json:"random,omitempty"`  // of the others
}

// Tag is added to spans: a text, or the value of a request header.
type Tag struct {
	Name    string     `json:"name"`
	Literal *string    `json:"literal,omitempty"`
	Header  *HeaderTag `json:"header,omitempty"`
}

// HeaderTag takes the value of a request header. Without the header and a default the span has no tag.
type HeaderTag struct {
	Name    string  `json:"name"`
	Default *string `json:"default,omitempty"`
}
