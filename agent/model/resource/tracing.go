package resource

import "net/url"

// Tracing lists the destinations of a mesh's spans, for TrafficTrace policies.
type Tracing struct {
	// DefaultBackend is the backend of TrafficTraces that name none; "" disables their spans.
	DefaultBackend string           `json:"defaultBackend,omitempty"`
	Backends       []TracingBackend `json:"backends,omitempty"`
}

// TracingBackend is one collector of spans.
type TracingBackend struct {
	Name     string       `json:"name"`
	Sampling *Decimal     `json:"sampling,omitempty" check:"percentage"` // percentage of requests; all if unset
	Type     string       `json:"type"`                                  // TracingZipkin or TracingDatadog
	Conf     *TracingConf `json:"conf,omitempty"`
}

// TracingConf is the conf of a backend: URL to SharedSpanContext for Zipkin, the others for
// Datadog.
type TracingConf struct {
	URL               string `json:"url,omitempty"` // of the API
	TraceID128Bit     *bool  `json:"traceId128bit,omitempty"`
	APIVersion        string `json:"apiVersion,omitempty"`        // "" for httpJson
	SharedSpanContext *bool  `json:"sharedSpanContext,omitempty"` // true if unset

	Address      string `json:"address,omitempty"`
	Port         uint32 `json:"port,omitempty"`
	SplitService *bool  `json:"splitService,omitempty"`
}

// Types of tracing backends.
const (
	TracingZipkin  = "zipkin"
	TracingDatadog = "datadog"
)

// Backend returns the backend of that name, or nil.
func (t *Tracing) Backend(name string) *TracingBackend {
	if t == nil {
		return nil
	}
	return backendNamed(t.Backends, name, func(b *TracingBackend) string { return b.Name })
}

func (t *Tracing) validate(v *Validator) {
	validateBackends(v, t.Backends, t.DefaultBackend, func(b *TracingBackend) string { return b.Name },
		func(b *TracingBackend, v *Validator) {
			if v.Field("type").OneOf(b.Type, TracingZipkin, TracingDatadog) {
				b.validateConf(v.Field("conf"))
			}
		})
}

func (b *TracingBackend) validateConf(v *Validator) {
	c := b.Conf
	if c == nil {
		c = &TracingConf{}
	}
	if b.Type == TracingDatadog {
		v.Field("address").Host(c.Address)
		v.Field("port").Port(c.Port)
		for field, set := range map[string]bool{
			"url":               c.URL != "",
			"traceId128bit":     c.TraceID128Bit != nil,
			"apiVersion":        c.APIVersion != "",
			"sharedSpanContext": c.SharedSpanContext != nil,
		} {
			v.unset(set, field, "a Datadog agent has address and port: remove it, or set type to %s", TracingZipkin)
		}
		return
	}
	switch u, err := url.Parse(c.URL); {
	case c.URL == "":
		v.Field("url").Faultf("the URL of the collector is missing, such as http://zipkin:9411/api/v2/spans")
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		v.Field("url").
			Faultf("the value is not an http or https URL with a host: write for example http://zipkin:9411/api/v2/spans")
	}
	v.Field("apiVersion").optional(c.APIVersion, "httpJson", "httpProto")
	for field, set := range map[string]bool{
		"address":      c.Address != "",
		"port":         c.Port != 0,
		"splitService": c.SplitService != nil,
	} {
		v.unset(set, field, "a Zipkin collector has a url: remove it, or set type to %s", TracingDatadog)
	}
}
