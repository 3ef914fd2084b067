package accesslog_test

import (
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// to returns a policy with one conf.
func to(conf string) string {
	return `{"type":"MeshAccessLog","mesh":"default","name":"l","spec":{"targetRef":{"kind":"Mesh"},"to":[{"targetRef":{"kind":"Mesh"},"default":` + conf + `}]}}`
}

func backend(b string) string { return to(`{"backends":[` + b + `]}`) }

// format returns a policy with a format in Kuma's form, and value one in that of the design
// document.
func format(f string) string {
	return backend(`{"type":"File","file":{"path":"/tmp/a","format":` + f + `}}`)
}

func filtering(f string) string { return to(`{"backends":[],"filtering":` + f + `}`) }

func otel(o string) string { return backend(`{"type":"OpenTelemetry","openTelemetry":` + o + `}`) }

func spec(kind, s string) string { return `{"type":"` + kind + `","name":"b","spec":` + s + `}` }

const (
	conf   = "spec.to[0].default"
	first  = conf + ".backends[0]"
	fileAt = first + ".file.format"
	otelAt = first + ".openTelemetry"
)

func TestRefused(t *testing.T) {
	long := strings.Repeat(`{"type":"File","file":{"path":"/a"}},`, 65)
	for _, c := range []struct{ doc, field, reason string }{
		{to(`{}`), conf + ".backends", "[] to disable the log"},
		{to(`{"backends":null}`), conf + ".backends", "null is not allowed"},
		{to(`{"filtering":{}}`), conf + ".backends", "missing"},
		{backend(long[:len(long)-1]), conf + ".backends", "at most 64"},
		{backend(`{}`), first + ".type", "missing"},
		{backend(`{"type":"Udp"}`), first + ".type", "reference"},
		{backend(`{"type":"FILE","file":{"path":"/a"}}`), first + ".type", "not allowed"},
		{backend(`{"type":"File"}`), first + ".file", "is required for"},
		{backend(`{"type":"file"}`), first + ".conf", "is required for"},
		{backend(`{"type":"Tcp"}`), first + ".tcp", "is required for"},
		{backend(`{"type":"tcp"}`), first + ".conf", "is required for"},
		{backend(`{"type":"OpenTelemetry"}`), first + ".openTelemetry", "is required for"},
		{backend(`{"type":"File","file":{"path":"/a"},"tcp":{"address":"a:1"}}`), first + ".tcp",
			"is not allowed with type File"},
		{backend(`{"type":"Tcp","tcp":{"address":"a:1"},"file":{"path":"/a"}}`), first + ".file",
			"is not allowed with type Tcp"},
		{backend(`{"type":"File","file":{"path":"/a"},"openTelemetry":{"endpoint":"a"}}`), first + ".openTelemetry",
			"remove it"},
		{backend(`{"type":"File","file":{"path":"/a"},"conf":{"path":"/a"}}`), first + ".conf", "remove one"},
		{otel(`{"endpoint":"a"},"conf":{"path":"/a"}`), first + ".conf", "is not allowed with"},
		{backend(`{"type":"File","file":{"path":"/a","rotation":{"maxFileSize":-1}}}`), first + ".file.rotation.maxFileSize",
			"-1 is negative: give at least 0"},
		{backend(`{"type":"file","conf":{"path":"/a","rotation":{"maxFiles":-2}}}`), first + ".conf.rotation.maxFiles",
			"-2 is negative: give at least 0"},
		{backend(`{"type":"file","conf":{"path":"/a","rotation":{"maxFileAge":36501}}}`), first + ".conf.rotation.maxFileAge",
			"the maximum is 36500"},
		{backend(`{"type":"file","conf":{"path":"/a","rotation":{"maxFileSize":1048577}}}`),
			first + ".conf.rotation.maxFileSize", "the maximum is 1048576"},
		{backend(`{"type":"file","conf":{"path":"/a","rotation":{"maxFilesize":1}}}`), first + ".conf.rotation.maxFilesize",
			"unknown field"},
		{backend(`{"type":"file","conf":{"path":"/a","rotation":{"maxFiles":1.5}}}`), first + ".conf.rotation.maxFiles", ""},
		{backend(`{"type":"tcp","conf":{"address":"a:1","rotation":{}}}`), first + ".conf.rotation",
			"is not allowed with type tcp"},
		{backend(`{"type":"reference","conf":{"kind":"MeshAccessLogBackend","name":"a","rotation":{}}}`),
			first + ".conf.rotation", "is not allowed with type reference"},
		{backend(`{"type":"File","file":{}}`), first + ".file.path", "missing"},
		{backend(`{"type":"File","file":{"path":""}}`), first + ".file.path", "missing"},
		{backend(`{"type":"File","file":{"path":"a.log"}}`), first + ".file.path", "not an absolute path"},
		{backend(`{"type":"File","file":{"path":"/tmp/"}}`), first + ".file.path", "directory"},
		{backend(`{"type":"file","conf":{"path":"/a\nb"}}`), first + ".conf.path", "control characters"},
		{backend(`{"type":"file","conf":{"path":"/a","address":"a:1"}}`), first + ".conf.address",
			"is not allowed with type file"},
		{backend(`{"type":"Tcp","tcp":{"address":"nope nope"}}`), first + ".tcp.address", "not host:port"},
		{backend(`{"type":"Tcp","tcp":{"address":"logs"}}`), first + ".tcp.address", "not host:port"},
		{backend(`{"type":"tcp","conf":{"address":"a:0"}}`), first + ".conf.address", "1 to 65535"},
		{backend(`{"type":"tcp","conf":{"address":"a%b:1"}}`), first + ".conf.address", "only letters"},
		{backend(`{"type":"tcp","conf":{"address":"a:1","path":"/a"}}`), first + ".conf.path",
			"is not allowed with type tcp"},
		{backend(`{"type":"tcp","conf":{"adress":"a:1"}}`), first + ".conf.adress", `did you mean "address"`},

		{backend(`{"type":"reference"}`), first + ".conf", "missing"},
		{backend(`{"type":"reference","conf":{"name":"a"}}`), first + ".conf.kind", "missing"},
		{backend(`{"type":"reference","conf":{"kind":"Mesh","name":"a"}}`), first + ".conf.kind",
			"MeshAccessLogBackend, GlobalAccessLogBackend"},
		{backend(`{"type":"reference","conf":{"kind":"MeshAccessLogBackend"}}`), first + ".conf.name", "missing"},
		{backend(`{"type":"reference","name":"b","conf":{"kind":"MeshAccessLogBackend","name":"a"}}`), first + ".conf.name",
			"differs from"},
		{backend(`{"type":"reference","name":"a","format":{"type":"string","value":"x"}}`), first + ".format",
			"has no format"},
		{backend(`{"type":"reference","conf":{"kind":"MeshAccessLogBackend","name":"a","path":"/x"}}`), first + ".conf.path",
			"is not allowed with"},

		{backend(`{"type":"file","conf":{"path":"/a"},"format":"%DURATION%"}`), first + ".format",
			"a plain string is not supported: use {type: Plain"},
		{backend(`{"type":"file","conf":{"path":"/a"},"format":[]}`), first + ".format", "a mapping is required"},
		{backend(`{"type":"File","file":{"path":"/a","format":{"type":"Plain","plain":"x"}},"format":{"type":"string","value":"x"}}`),
			first + ".format", "remove one"},
		{format(`{}`), fileAt + ".type", "missing"},
		{format(`{"type":"Text","plain":"x"}`), fileAt + ".type", "Plain, Json, string, json"},
		{format(`{"type":"Plain"}`), fileAt + ".plain", "missing"},
		{format(`{"type":"Plain","plain":""}`), fileAt + ".plain", "missing"},
		{format(`{"type":"Plain","plain":5}`), fileAt + ".plain", "a string is required"},
		{format(`{"type":"Plain","value":"x"}`), fileAt + ".value", "is not allowed with type Plain"},
		{format(`{"type":"Plain","plain":"x","json":[]}`), fileAt + ".json", "is not allowed with"},
		{format(`{"type":"string","plain":"x"}`), fileAt + ".value", "missing"},
		{format(`{"type":"Plain","plain":"x","pretty":true}`), fileAt + ".pretty", "known fields"},
		{format(`{"type":"Plain","plain":"x","omitEmptyValues":"yes"}`), fileAt + ".omitEmptyValues", "a boolean"},
		{format(`{"type":"Plain","plain":"ok %DURATON%"}`), fileAt + ".plain",
			"at position 3: there is no operator %DURATON%; did you mean %DURATION%?"},
		{format(`{"type":"Plain","plain":"%req(x)%"}`), fileAt + ".plain", "at position 0"},
		{format(`{"type":"Plain","plain":"%KUMA_SOURCE_SERVIC%"}`), fileAt + ".plain", "did you mean %KUMA_SOURCE_SERVICE%?"},
		{format(`{"type":"Plain","plain":"%KUMA_MESH(x)%"}`), fileAt + ".plain", "takes no argument"},
		{format(`{"type":"string","value":"100%"}`), fileAt + ".value", "write %% for a percent sign"},
		{format(`{"type":"Json"}`), fileAt + ".json", "missing"},
		{format(`{"type":"Json","json":[]}`), fileAt + ".json", "missing"},
		{format(`{"type":"Json","json":{"a":"b"}}`), fileAt + ".json", "a list"},
		{format(`{"type":"Json","json":["a"]}`), fileAt + ".json[0]", "{key: …, value: …}"},
		{format(`{"type":"Json","json":[{"value":"x"}]}`), fileAt + ".json[0].key", "missing"},
		{format(`{"type":"Json","json":[{"key":"x"}]}`), fileAt + ".json[0].value", "missing"},
		{format(`{"type":"Json","json":[{"key":"x","value":7}]}`), fileAt + ".json[0].value", "use quotes"},
		{format(`{"type":"Json","json":[{"key":"x","value":"y","z":1}]}`), fileAt + ".json[0].z", "known fields"},
		{format(`{"type":"Json","json":[{"key":"\"a\"","value":"x"}]}`), fileAt + ".json[0]", "quotation mark"},
		{format(`{"type":"Json","json":[{"key":"a","value":"x\ny"}]}`), fileAt + ".json[0]", "line break"},
		{format(`{"type":"Json","json":[{"key":"a","value":"x"},{"key":"b","value":"%NO%"}]}`), fileAt + ".json[1].value",
			"no operator %NO%"},
		{format(`{"type":"Json","json":[{"key":"","value":"x"},{"key":"a","value":"x"},{"key":"a","value":"y"}]}`),
			fileAt + ".json[2].key", "already the key"},
		{format(`{"type":"json","value":"x"}`), fileAt + ".value", "a list"},

		{otel(`{}`), otelAt + ".endpoint", "4317"},
		{otel(`{"endpoint":""}`), otelAt + ".endpoint", "missing"},
		{otel(`{"endpoint":"http://otel:4317"}`), otelAt + ".endpoint", "URL"},
		{otel(`{"endpoint":"otel:x"}`), otelAt + ".endpoint", "is not a port"},
		{otel(`{"endpoint":"o tel"}`), otelAt + ".endpoint", "only letters"},
		{otel(`{"endpoint":"otel","attributes":[{"value":"x"}]}`), otelAt + ".attributes[0].key", "missing"},
		{otel(`{"endpoint":"otel","attributes":[{"key":"a","value":"x"},{"key":"a","value":"y"}]}`),
			otelAt + ".attributes[1].key", "already"},
		{otel(`{"endpoint":"otel","attributes":[{"key":"a","value":"%X%"}]}`), otelAt + ".attributes[0].value",
			"no operator"},
		{otel(`{"endpoint":"otel","body":"%X%"}`), otelAt + ".body", "no operator"},
		{otel(`{"endpoint":"otel","body":{"stringValue":"%X%"}}`), otelAt + ".body.stringValue", "no operator"},
		{otel(`{"endpoint":"otel","body":{"intValue":"5"}}`), otelAt + ".body.intValue", "supports only strings"},
		{otel(`{"endpoint":"otel","body":{"value":"5"}}`), otelAt + ".body.value", "unknown field"},
		{otel(`{"endpoint":"otel","body":5}`), otelAt + ".body", "one of"},
		{otel(`{"endpoint":"otel","body":{"kvlistValue":{"values":[{"key":"a","value":{"arrayValue":{"values":[{"stringValue":"%X%"}]}}}]}}}`),
			otelAt + ".body.kvlistValue.values[0].value.arrayValue.values[0].stringValue", "no operator"},
		{otel(`{"endpoint":"otel","body":{"kvlistValue":{"values":[{"value":{"stringValue":"x"}}]}}}`),
			otelAt + ".body.kvlistValue.values[0].key", "missing"},

		{filtering(`{"headers":{":status":{"value":"500"}}}`), conf + `.filtering.headers[":status"].op`,
			"eq, ne, ge, le, present"},
		{filtering(`{"headers":{":status":{"op":"eq","value":"5xx"}}}`), conf + `.filtering.headers[":status"].value`,
			"100 to 599"},
		{filtering(`{"headers":{":status":{"op":"eq","value":500}}}`), conf + `.filtering.headers[":status"].value`,
			`write it in quotes, "500"`},
		{filtering(`{"headers":{"x":{"op":"eq"}}}`), conf + `.filtering.headers["x"].value`, "missing"},
		{filtering(`{"headers":{"x":{"op":"present","value":"y"}}}`), conf + `.filtering.headers["x"].value`,
			"has no value"},
		{filtering(`{"headers":{"x":{"op":"ge","value":"1.5"}}}`), conf + `.filtering.headers["x"].value`, "64-bit integer"},
		{filtering(`{"headers":{"x":{"op":"le","value":"9223372036854775807"}}}`), conf + `.filtering.headers["x"].value`,
			"64-bit integer"},
		{filtering(`{"headers":{"x":{"op":"eq","value":"a\u0001"}}}`), conf + `.filtering.headers["x"].value`,
			"control characters"},
		{filtering(`{"headers":{"X-A":{"op":"present"}}}`), conf + `.filtering.headers["X-A"]`, "lower-case"},
		{filtering(`{"headers":{":protocol":{"op":"present"}}}`), conf + `.filtering.headers[":protocol"]`, ":authority"},
		{filtering(`{"duration":{"op":"present","value":"1s"}}`), conf + ".filtering.duration.op", "eq, ne, ge, le"},
		{filtering(`{"duration":{"op":"ge"}}`), conf + ".filtering.duration.value", "missing"},
		{filtering(`{"duration":{"op":"ge","value":"-1s"}}`), conf + ".filtering.duration.value", "negative"},
		{filtering(`{"duration":{"op":"ge","value":"1us"}}`), conf + ".filtering.duration.value", "milliseconds"},
		{filtering(`{"duration":{"op":"ge","value":"10000h"}}`), conf + ".filtering.duration.value", "the maximum is"},
		{filtering(`{"responseFlags":["XX"]}`), conf + ".filtering.responseFlags[0]", "UAEX"},
		{filtering(`{"grpcStatus":["unavailable"]}`), conf + ".filtering.grpcStatus[0]", "UNAVAILABLE"},
		{filtering(`{"status":500}`), conf + ".filtering.status", "unknown field"},

		{spec("MeshAccessLogBackend", `{}`), "spec.name", "missing"},
		{spec("MeshAccessLogBackend", `{"name":"a"}`), "spec.type", "missing"},
		{spec("MeshAccessLogBackend", `{"name":"a","type":"reference","conf":{"kind":"MeshAccessLogBackend","name":"b"}}`),
			"spec.type", "not allowed"},
		{spec("GlobalAccessLogBackend", `{"name":"a","type":"tcp","conf":{"address":"x"}}`),
			"spec.conf.address", "not host:port"},
		{spec("GlobalAccessLogBackend", `{"name":"a","type":"file","conf":{"path":"/a"},"format":"x"}`),
			"spec.format", "plain string"},
		{`{"type":"GlobalAccessLogBackend","mesh":"default","name":"a","spec":{"name":"a","type":"file","conf":{"path":"/a"}}}`, "mesh", ""},

		{strings.Replace(to(`{"backends":[]}`), `"kind":"Mesh"},"default"`, `"kind":"MeshSubset","tags":{"a":"b"}},"default"`,
			1), "spec.to[0].targetRef.kind", "MeshHTTPRoute"},
		{strings.Replace(to(`{"backends":[]}`), `"spec":{"targetRef":{"kind":"Mesh"}`,
			`"spec":{"targetRef":{"kind":"MeshHTTPRoute","name":"r"}`, 1), "spec.targetRef.kind", "allows only from"},
		{strings.Replace(to(`{"backends":[]}`), `"spec":{"targetRef":{"kind":"Mesh"}`,
			`"spec":{"targetRef":{"kind":"MeshGatewayRoute","name":"r"}`, 1), "spec.targetRef.kind", "allows only from"},
		{strings.Replace(to(`{"backends":[]}`), `"to":`,
			`"from":[{"targetRef":{"kind":"MeshGatewayRoute","name":"r"},"default":{"backends":[]}}],"to":`, 1),
			"spec.from[0].targetRef.kind", "MeshServiceSubset"},
		// Examples of the design document without backends.
		{`{"type":"MeshAccessLog","mesh":"default","name":"some-logging","spec":{"targetRef":{"kind":"MeshService","name":"web-backend"},"from":[{"targetRef":{"kind":"MeshService","name":"web-frontend"}}]}}`,
			"spec.from[0].default.backends", "missing"},
		{`{"type":"MeshAccessLog","mesh":"default","name":"some-logging","spec":{"targetRef":{"kind":"MeshService","name":"web-backend"},"to":[{"targetRef":{"kind":"MeshService","name":"web-queue"}}]}}`,
			"spec.to[0].default.backends", "missing"},
	} {
		res, faults := kinds.Registry().Decode("", []byte(c.doc))
		found := false
		for _, f := range faults {
			found = found || f.Field == c.field && strings.Contains(f.Reason, c.reason)
		}
		if len(res) > 0 || !found {
			t.Errorf("%.300s\nwant a fault at %s with %q, got %v", c.doc, c.field, c.reason, faults)
		}
	}
}

func TestAccepted(t *testing.T) {
	for _, doc := range []string{
		to(`{"backends":[]}`),
		backend(`{"type":"File","file":{"path":"/dev/stdout"}}`),
		backend(
			`{"type":"file","name":"mine","conf":{"path":"/tmp/a.log"},"format":{"type":"string","value":"%START_TIME(%s)%"}}`),
		backend(`{"type":"file","conf":{"path":"/tmp/a.log"},"format":{"type":"json","value":[{"key":"a b","value":"%DURATION%"}]}}`),
		backend(`{"type":"Tcp","tcp":{"address":"[fd00::1]:5000","format":{"type":"Json","json":[{"key":"a","value":"%KUMA_WORKLOAD%"}],"omitEmptyValues":false}}}`),
		backend(`{"type":"reference","name":"a"}`),
		backend(`{"type":"reference","conf":{"kind":"GlobalAccessLogBackend","name":"a"}}`),
		otel(`{"endpoint":"otel-collector"}`), otel(`{"endpoint":"fd00::1"}`), otel(`{"endpoint":"[fd00::1]:4317"}`),
		otel(`{"endpoint":"otel:4317","attributes":[{"key":"mesh","value":"%KUMA_MESH%"}],"body":{"kvlistValue":{"values":[{"key":"mesh","value":{"stringValue":"%KUMA_MESH%"}}]}}}`),
		otel(`{"endpoint":"otel:4317","body":{"array_value":{"values":[{"string_value":"%KUMA_MESH%"}]}}}`),
		filtering(`{"headers":{":status":{"op":"present"},":path":{"op":"ne","value":"/"}},"duration":{"op":"ne","value":"0s"},"responseFlags":["UF"],"grpcStatus":["OK"]}`),
		spec("MeshAccessLogBackend", `{"name":"logstash","type":"tcp","conf":{"address":"127.0.0.1:5000"}}`),
		spec("GlobalAccessLogBackend", `{"name":"otel","type":"OpenTelemetry","openTelemetry":{"endpoint":"otel"}}`),
		`{"type":"TrafficLog","mesh":"default","name":"a","sources":[{"match":{"kuma.io/service":"*"}}],"destinations":[{"match":{"kuma.io/service":"*"}}],"conf":{"backend":"b"}}`,
		strings.Replace(to(`{"backends":[]}`), `"targetRef":{"kind":"Mesh"}`, `"targetRef":{"kind":"Mesh","name":"default"}`,
			2),
	} {
		res, faults := kinds.Registry().Decode("", []byte(doc))
		if len(faults) > 0 || len(res) != 1 {
			t.Errorf("%s: %v", doc, faults)
			continue
		}
		second, faults := kinds.Registry().Seal(res[0])
		if len(faults) > 0 || second.Digest != res[0].Digest {
			t.Errorf("%s: decoded again: %v, digest %x instead of %x", doc, faults, second.Digest, res[0].Digest)
		}
		if b, err := resource.Marshal(res[0]); err != nil || strings.Contains(string(b), `\u0026`) ||
			strings.Contains(string(b), "null") {
			t.Errorf("%s: encoded as %s, %v", doc, b, err)
		}
	}
}

// FuzzFormat checks that formats and bodies of documents never panic, and that accepted ones are
// decoded again with the same result.
func FuzzFormat(f *testing.F) {
	for _, s := range []string{`{"type":"Plain","plain":"%DURATION%"}`,
		`{"type":"json","value":[{"key":"a","value":"b"}]}`, `"x"`, `[]`, `{"type":"Json","json":[null]}`,
		`{"kvlistValue":{"values":[{"key":"a","value":{"arrayValue":{"values":[]}}}]}}`,
		`{"stringValue":null}`, `{"arrayValue":{"values":{}}}`} {
		f.Add(s)
	}
	registry := kinds.Registry()
	f.Fuzz(func(t *testing.T, s string) {
		for _, doc := range []string{format(s), otel(`{"endpoint":"a","body":` + s + `}`)} {
			res, faults := registry.Decode("", []byte(doc))
			if len(faults) > 0 {
				continue
			}
			for _, r := range res {
				if second, faults := registry.Seal(r); len(faults) > 0 || second.Digest != r.Digest {
					t.Fatalf("%s: decoded again: %v", doc, faults)
				}
			}
		}
	})
}
