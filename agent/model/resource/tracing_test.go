package resource_test

import (
	"strings"
	"testing"
)

// TestTracing checks that the tracing backends of a mesh are complete and of one type.
func TestTracing(t *testing.T) {
	r := registry(t)
	for _, c := range []struct{ tracing, field, reason string }{
		{`{backends: [{name: a, type: zipkin, sampling: 99.5, conf: {url: "http://z:9411/api/v2/spans", apiVersion: httpJson}}, {name: b, type: datadog, conf: {address: d, port: 8126, splitService: true}}]}`, "", ""},
		{`{defaultBackend: a}`, "tracing.defaultBackend", "does not exist"},
		{`{backends: [{type: zipkin, conf: {url: "http://z/"}}]}`, "tracing.backends[0].name", "missing"},
		{`{backends: [{name: a, type: jaeger}]}`, "tracing.backends[0].type", "zipkin, datadog"},
		{`{backends: [{name: a, type: zipkin}]}`, "tracing.backends[0].conf.url", "missing"},
		{`{backends: [{name: a, type: zipkin, conf: {url: "z:9411"}}]}`, "tracing.backends[0].conf.url", "http"},
		{`{backends: [{name: a, type: zipkin, conf: {url: "http://z/", apiVersion: httpJsonV1}}]}`,
			"tracing.backends[0].conf.apiVersion", "httpProto"},
		{`{backends: [{name: a, type: zipkin, conf: {url: "http://z/", port: 1}}]}`,
			"tracing.backends[0].conf.port", "datadog"},
		{`{backends: [{name: a, type: datadog, conf: {address: d}}]}`, "tracing.backends[0].conf.port", "65535"},
		{`{backends: [{name: a, type: datadog, conf: {address: d, port: 1, url: "http://z/"}}]}`,
			"tracing.backends[0].conf.url", "zipkin"},
		{`{backends: [{name: a, type: zipkin, sampling: 101, conf: {url: "http://z/"}}]}`,
			"tracing.backends[0].sampling", "100"},
	} {
		_, faults := r.Decode("", []byte("{type: Mesh, name: m, tracing: "+c.tracing+"}"))
		found := c.field == "" && len(faults) == 0
		for _, f := range faults {
			found = found || f.Field == c.field && strings.Contains(f.Reason, c.reason)
		}
		if !found {
			t.Errorf("%s: want %q at %q, got %v", c.tracing, c.reason, c.field, faults)
		}
	}
}
