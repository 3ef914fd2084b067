package metric_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/metric"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/test/kindtest"
)

func TestCases(t *testing.T) { kindtest.Run(t, "testdata", metric.Plugin()) }

func decode(conf string) ([]*resource.Resource, resource.Faults) {
	return kinds.Registry().Decode("",
		fmt.Appendf(nil, `{"type":"MeshMetric","mesh":"default","name":"p","spec":{"default":%s}}`, conf))
}

func prometheus(confs ...string) string {
	items := make([]string, len(confs))
	for i, c := range confs {
		items[i] = `{"type":"Prometheus","prometheus":` + c + `}`
	}
	return `{"backends":[` + strings.Join(items, ",") + `]}`
}

func otlp(conf string) string {
	return `{"backends":[{"type":"OpenTelemetry","openTelemetry":` + conf + `}]}`
}

func TestAccepted(t *testing.T) {
	for _, conf := range []string{
		`{}`, `{"backends":[]}`, `{"applications":[]}`,
		prometheus(`{}`),
		prometheus(`{"clientId":"main","port":5670,"path":"/metrics","tls":{"mode":"ProvidedTLS"}}`,
			`{"port":5671,"tls":{}}`),
		otlp(`{"endpoint":"otel-collector:4317","refreshInterval":"30s"}`),
		otlp(`{"endpoint":"otel-collector"}`), otlp(`{"endpoint":"[fd00::1]:4317"}`), otlp(`{"endpoint":"fd00::1"}`),
		`{"sidecar":{"includeUnused":true,"profiles":{"appendProfiles":[{"name":"All"},{"name":"None"}],"exclude":[{"type":"Regex","match":"my_.*"}],"include":[{"type":"Prefix","match":"a"},{"type":"Contains","match":"b"},{"type":"Exact","match":"c"}]}}}`,
		`{"applications":[{"name":"a","path":"metrics/prometheus","address":"localhost","port":8888},{"port":8000}]}`,
	} {
		rs, faults := decode(conf)
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
	const first, profiles = "backends[0].", "sidecar.profiles."
	selectors := func(field, list string) string { return `{"sidecar":{"profiles":{"` + field + `":[` + list + `]}}}` }
	for _, c := range []struct{ conf, field, reason string }{
		{`{"backends":[{"type":"StatsD"}]}`, first + "type", "Prometheus, OpenTelemetry"},
		{`{"backends":[{"type":"Prometheus"}]}`, first + "prometheus", "{} selects the defaults"},
		{`{"backends":[{"type":"OpenTelemetry","prometheus":{}}]}`, first + "openTelemetry", "is required for"},
		{prometheus(`{"port":95599}`), first + "prometheus.port", "1 to 65535"},
		{prometheus(`{"port":0}`), first + "prometheus.port", "1 to 65535"},
		{prometheus(`{"path":"metrics"}`), first + "prometheus.path", "begin with /"},
		{prometheus(`{"path":"/metrics?a"}`), first + "prometheus.path", "query"},
		{prometheus(`{"path":""}`), first + "prometheus.path", "begin with /"},
		{prometheus(`{"clientId":""}`), first + "prometheus.clientId", "empty"},
		{prometheus(`{"tls":{"mode":"On"}}`), first + "prometheus.tls.mode", "Disabled, ProvidedTLS, ActiveMTLSBackend"},
		{prometheus(`{"clientId":"a"}`, `{"port":5670,"clientId":"b"}`), "backends[1].prometheus.port", "already the"},
		{prometheus(`{"port":1}`, `{"port":2}`), "backends[1].prometheus.clientId", "already the"},
		{otlp(`{}`), first + "openTelemetry.endpoint", "missing"},
		{otlp(`{"endpoint":"http://otel:4317"}`), first + "openTelemetry.endpoint", "without a scheme"},
		{otlp(`{"endpoint":"otel:x"}`), first + "openTelemetry.endpoint", "not a port"},
		{otlp(`{"endpoint":"a b:1"}`), first + "openTelemetry.endpoint", "not an IP address or a host name"},
		{otlp(`{"endpoint":"otel","refreshInterval":"0s"}`), first + "openTelemetry.refreshInterval", "1ms or more"},
		{selectors("appendProfiles", `{"name":"basic"}`), profiles + "appendProfiles[0].name", "All, Basic, None"},
		{selectors("exclude", `{"type":"Regex","match":"())(!("}`), profiles + "exclude[0].match",
			"not a regular expression"},
		{selectors("include", `{"type":"Suffix","match":"a"}`), profiles + "include[0].type",
			"Prefix, Regex, Exact, Contains"},
		{selectors("include", `{"type":"Prefix"}`), profiles + "include[0].match", "missing"},
		{selectors("include", `{"type":"Exact","match":"`+strings.Repeat("a", 257)+`"}`), profiles + "include[0].match",
			"at most 256"},
		{`{"sidecar":{"regex":"a"}}`, "sidecar.regex", "unknown"},
		{`{"applications":[{"port":95599}]}`, "applications[0].port", "1 to 65535"},
		{`{"applications":[{"port":1,"address":"0.0.0.0"}]}`, "applications[0].address", "every address"},
	} {
		_, faults := decode(c.conf)
		if len(faults) != 1 || faults[0].Field != "spec.default."+c.field || !strings.Contains(faults[0].Reason, c.reason) {
			t.Errorf("%s: want a fault at %s with %q, got %v", c.conf, c.field, c.reason, faults)
		}
	}
}
