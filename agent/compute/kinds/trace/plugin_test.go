package trace_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/trace"
	legacykind "github.com/nearside-mesh/nearside/agent/compute/kinds/trace/legacy"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/test/kindtest"
)

func TestCases(t *testing.T) { kindtest.Run(t, "testdata", trace.Plugin(legacykind.Kind())) }

func TestMigrations(t *testing.T) {
	kindtest.RunMigrations(t, "testdata/migrate", trace.Plugin(legacykind.Kind()))
}

func decode(spec string) ([]*resource.Resource, resource.Faults) {
	return kinds.Registry().Decode("",
		fmt.Appendf(nil, `{"type":"MeshTrace","mesh":"default","name":"p","spec":%s}`, spec))
}

func withConf(conf string) string { return `{"targetRef":{"kind":"Mesh"},"default":` + conf + `}` }

func zipkin(url string) string {
	return `{"backends":[{"type":"Zipkin","zipkin":{"url":"` + url + `"}}]}`
}

func datadog(url string) string {
	return `{"backends":[{"type":"Datadog","datadog":{"url":"` + url + `"}}]}`
}

func otlp(endpoint string) string {
	return `{"backends":[{"type":"OpenTelemetry","openTelemetry":{"endpoint":"` + endpoint + `"}}]}`
}

func TestAccepted(t *testing.T) {
	for _, conf := range []string{
		`{"backends":[]}`,
		zipkin("http://jaeger-collector.mesh-observability:9411/api/v2/spans"),
		zipkin("https://zipkin/"),
		zipkin("http://[fd00::1]/spans?token=a%2Fb"),
		`{"backends":[{"type":"Zipkin","zipkin":{"url":"http://z:1/s","traceId128bit":true,"apiVersion":"httpProto","sharedSpanContext":false}}]}`,
		datadog("http://intake.datadoghq.eu:8126"),
		datadog("http://[fd00::1]:8126"),
		otlp("otel-collector:4317"), otlp("otel-collector"), otlp("192.0.2.1"), otlp("fd00::1"), otlp("[fd00::1]"),
		otlp("[fd00::1]:4317"), `{"backends":[],"sampling":{"overall":80,"random":"60.1","client":0},"tags":[{"name":"team","literal":"core"},{"name":"env","header":{"name":"X-Env","default":"prod"}},{"name":"version","header":{"name":"x-version"}}]}`,
	} {
		rs, faults := decode(withConf(conf))
		if len(faults) > 0 {
			t.Errorf("%s: %v", conf, faults)
			continue
		}
		out, err := json.Marshal(rs[0].Spec.(*resource.Policy).Default)
		if err != nil || !kindtest.SameJSON(t, string(out), conf) {
			t.Errorf("%s\nis encoded as %s (%v)", conf, out, err)
		}
	}
}

func TestRefused(t *testing.T) {
	const first = "backends[0]."
	tags := func(list string) string { return `{"backends":[],"tags":[` + list + `]}` }
	for _, c := range []struct{ conf, field, reason string }{
		{`{}`, "backends", "give a backend, or []"},
		{`{"backends":[{"type":"Datadog"},{"type":"Datadog"}]}`, "backends", "2 backends"},
		{`{"backends":[{"zipkin":{"url":"http://z/s"}}]}`, first + "type", "missing: give one of Zipkin"},
		{`{"backends":[{"type":"Jaeger"}]}`, first + "type", `"Jaeger" is not allowed`},
		{`{"backends":[{"type":"Zipkin"}]}`, first + "zipkin", "is required for"},
		{`{"backends":[{"type":"Datadog"}]}`, first + "datadog", "is required for"},
		{`{"backends":[{"type":"OpenTelemetry"}]}`, first + "openTelemetry", "is required for"},
		{zipkin(""), first + "zipkin.url", "missing"},
		{zipkin("not_valid_url"), first + "zipkin.url", "use http or https"},
		{zipkin("ftp://z/s"), first + "zipkin.url", `the scheme is "ftp"`},
		{zipkin("http://z:9411"), first + "zipkin.url", "no path"},
		{zipkin("http://z:9411?a=b"), first + "zipkin.url", "no path"},
		{zipkin("http:///spans"), first + "zipkin.url", "no host"},
		{zipkin("http://u:secret@z/s"), first + "zipkin.url", "credentials"},
		{zipkin("http://z/s#f"), first + "zipkin.url", "fragment"},
		{zipkin("http://z:99999/s"), first + "zipkin.url", "1 to 65535"},
		{zipkin("http://a_b-/s"), first + "zipkin.url", "not an IP address or a host name"},
		{zipkin("http://z:x/s"), first + "zipkin.url", "not a URL"},
		{`{"backends":[{"type":"Zipkin","zipkin":{"url":"http://z/s","apiVersion":"httpJsonV1"}}]}`,
			first + "zipkin.apiVersion", "httpJson, httpProto"},
		{datadog(""), first + "datadog.url", "missing"},
		{datadog("http://intake.datadoghq.eu"), first + "datadog.url", "port is missing"},
		{datadog("http://intake.datadoghq.eu:"), first + "datadog.url", "port is missing"},
		{datadog("http://intake.datadoghq.eu:0"), first + "datadog.url", "1 to 65535"},
		{datadog("https://intake.datadoghq.eu:8126"), first + "datadog.url", "only http"},
		{datadog("sql://intake.datadoghq.eu:8126"), first + "datadog.url", `the scheme is "sql"`},
		{datadog("http://intake.datadoghq.eu:8126/some"), first + "datadog.url", `path "/some"`},
		{otlp(""), first + "openTelemetry.endpoint", "missing"},
		{otlp("http://otel:4317"), first + "openTelemetry.endpoint", "give host:port"},
		{otlp("otel:0"), first + "openTelemetry.endpoint", "1 to 65535"},
		{otlp("otel:"), first + "openTelemetry.endpoint", "1 to 65535"},
		{otlp("[otel]:1"), first + "openTelemetry.endpoint", "brackets"},
		{otlp("[fd00::1"), first + "openTelemetry.endpoint", "brackets"},
		{otlp("a:b:1"), first + "openTelemetry.endpoint", "in brackets"},
		{otlp("a b"), first + "openTelemetry.endpoint", "not an IP address or a host name"},
		{otlp("0.0.0.0:4317"), first + "openTelemetry.endpoint", "every address"},
		{`{"backends":[],"sampling":{"overall":101}}`, "sampling.overall", "0 to 100"},
		{`{"backends":[],"sampling":{"client":-1}}`, "sampling.client", "0 to 100"},
		{`{"backends":[],"sampling":{"random":"xyz"}}`, "sampling.random", "not a decimal number"},
		{tags(`{"literal":"a"}`), "tags[0].name", "missing"},
		{tags(`{"name":"a","literal":"b"},{"name":"a","literal":"c"}`), "tags[1].name", "given twice"},
		{tags(`{"name":"a"}`), "tags[0]", "either literal or header"},
		{tags(`{"name":"a","literal":"b","header":{"name":"c"}}`), "tags[0]", "either literal or header"},
		{tags(`{"name":"a","literal":""}`), "tags[0].literal", "empty"},
		{tags(`{"name":"a","header":{"default":"b"}}`), "tags[0].header.name", "missing"},
		{tags(`{"name":"a","header":{"name":"b c"}}`), "tags[0].header.name", "not allowed"},
	} {
		_, faults := decode(withConf(c.conf))
		if len(faults) != 1 || faults[0].Field != "spec.default."+c.field || !strings.Contains(faults[0].Reason, c.reason) {
			t.Errorf("%s: want a fault at %s with %q, got %v", c.conf, c.field, c.reason, faults)
		}
		if strings.Contains(faults.Error(), "secret") {
			t.Errorf("the fault shows the password: %v", faults)
		}
	}
	for spec, field := range map[string]string{
		`{"targetRef":{"kind":"Mesh"}}`:                                               "spec.default.backends",
		`{"targetRef":{"kind":"MeshHTTPRoute","name":"r"},"default":{"backends":[]}}`: "spec.targetRef.kind",
		`{"default":{"backends":[]},"to":[]}`:                                         "spec.to",
	} {
		if _, faults := decode(spec); len(faults) != 1 || faults[0].Field != field {
			t.Errorf("%s: want a fault at %s, got %v", spec, field, faults)
		}
	}
}
