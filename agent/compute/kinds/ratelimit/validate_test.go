package ratelimit_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

func document(conf string) []byte {
	return []byte(`{"type":"MeshRateLimit","mesh":"default","name":"l","spec":{"targetRef":{"kind":"MeshService","name":"backend"},"from":[{"targetRef":{"kind":"Mesh"},"default":` + conf + `}]}}`)
}

func headers(n int) string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf(`{"name":"x-%d","value":"v"}`, i)
	}
	return "[" + strings.Join(list, ",") + "]"
}

func TestValid(t *testing.T) {
	r := kinds.Registry()
	for _, conf := range []string{
		`{"local":{"http":{"disabled":true}}}`,
		`{"local":{"tcp":{"disabled":false}}}`,
		`{"local":{"http":{"requestRate":{"num":1,"interval":"51ms"}}}}`,
		`{"local":{"http":{"requestRate":{"num":4294967295,"interval":"24h0m0s"},"onRateLimit":{"status":503,"headers":{"set":[{"name":"retry-after","value":"10"}],"add":[{"name":"x-limited","value":"100%%"}]}}},"tcp":{"connectionRate":{"num":5,"interval":"1s"}}}}`,
		`{"local":{"http":{"onRateLimit":{"headers":{"set":` + headers(10) + `}}}}}`,
	} {
		res, faults := r.Decode("", document(conf))
		if len(faults) > 0 {
			t.Errorf("%s: %v", conf, faults)
			continue
		}
		out, err := resource.Marshal(res[0])
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(out), conf) {
			t.Errorf("%s is encoded as %s", conf, out)
		}
	}
}

func TestInvalid(t *testing.T) {
	r := kinds.Registry()
	for _, c := range []struct{ conf, field, reason string }{
		{`{}`, "local", "missing"},
		{`{"local":{}}`, "local", "is empty"},
		{`{"local":{"http":{}}}`, "local.http", "no field is set"},
		{`{"local":{"tcp":{}}}`, "local.tcp", "no field is set"},
		{`{"local":{"http":{"requestRate":{"interval":"1s"}}}}`, "local.http.requestRate.num", "missing"},
		{`{"local":{"http":{"requestRate":{"num":0,"interval":"1s"}}}}`, "local.http.requestRate.num", "1 or more"},
		{`{"local":{"http":{"requestRate":{"num":-1,"interval":"1s"}}}}`, "local.http.requestRate.num", "-1"},
		{`{"local":{"http":{"requestRate":{"num":4294967296,"interval":"1s"}}}}`,
			"local.http.requestRate.num", "out of range"},
		{`{"local":{"http":{"requestRate":{"num":1}}}}`, "local.http.requestRate.interval", "missing"},
		{`{"local":{"http":{"requestRate":{"num":1,"interval":"50ms"}}}}`, "local.http.requestRate.interval",
			"more than 50ms"},
		{`{"local":{"http":{"requestRate":{"num":1,"interval":"-1s"}}}}`, "local.http.requestRate.interval", "negative"},
		{`{"local":{"tcp":{"connectionRate":{"num":1,"interval":"0s"}}}}`, "local.tcp.connectionRate.interval",
			"more than 50ms"},
		{`{"local":{"tcp":{"connectionRate":{"num":1,"interval":10}}}}`, "local.tcp.connectionRate.interval",
			"without a unit"},
		{`{"local":{"http":{"onRateLimit":{"status":0}}}}`, "local.http.onRateLimit.status", "400 to 599"},
		{`{"local":{"http":{"onRateLimit":{"status":200}}}}`, "local.http.onRateLimit.status", "400 to 599"},
		{`{"local":{"http":{"onRateLimit":{"status":444}}}}`, "local.http.onRateLimit.status", "444"},
		{`{"local":{"http":{"onRateLimit":{"status":4294967295}}}}`, "local.http.onRateLimit.status", "4294967295"},
		{`{"local":{"http":{"onRateLimit":{"headers":{"set":` + headers(6) + `,"add":` + headers(5) + `}}}}}`,
			"local.http.onRateLimit.headers", "at most 10"},
		{`{"local":{"http":{"onRateLimit":{"headers":{"set":[{"name":"","value":"a"}]}}}}}`,
			"local.http.onRateLimit.headers.set[0].name", "missing"},
		{`{"local":{"http":{"onRateLimit":{"headers":{"set":[{"name":":status","value":"a"}]}}}}}`,
			"local.http.onRateLimit.headers.set[0].name", "not allowed"},
		{`{"local":{"http":{"onRateLimit":{"headers":{"add":[{"name":"host","value":"a"}]}}}}}`,
			"local.http.onRateLimit.headers.add[0].name", "host"},
		{`{"local":{"http":{"onRateLimit":{"headers":{"set":[{"name":"a","value":"1"},{"name":"a","value":"2"}]}}}}}`,
			"local.http.onRateLimit.headers.set[1].name", "twice"},
		{`{"local":{"http":{"onRateLimit":{"headers":{"set":[{"name":"a","value":"a\nb"}]}}}}}`,
			"local.http.onRateLimit.headers.set[0].value", "control character"},
		{`{"local":{"http":{"onRateLimit":{"headers":{"set":[{"name":"a"}]}}}}}`,
			"local.http.onRateLimit.headers.set[0].value", "empty"},
		{`{"local":{"http":{"onRateLimit":{"headers":{"set":[{"name":"a","value":"50%"}]}}}}}`,
			"local.http.onRateLimit.headers.set[0].value", "write %% for"},
		{`{"local":{"http":{"onRateLimit":{"headers":{"set":[{"name":"a","value":"` + strings.Repeat("a", 16385) + `"}]}}}}}`,
			"local.http.onRateLimit.headers.set[0].value", "16384"},
	} {
		expect(t, r, document(c.conf), "spec.from[0].default."+c.field, c.reason)
	}
}

func TestTargets(t *testing.T) {
	r := kinds.Registry()
	conf := `"default":{"local":{"tcp":{"disabled":true}}}`
	to := `"to":[{"targetRef":{"kind":"Mesh"},` + conf + `}]`
	doc := func(top, rest string) []byte {
		return []byte(`{"type":"MeshRateLimit","mesh":"default","name":"l","spec":{"targetRef":` + top + `,` + rest + `}}`)
	}
	for _, top := range []string{
		`{"kind":"Mesh"}`, `{"kind":"MeshSubset","proxyTypes":["Gateway"]}`, `{"kind":"MeshGateway","name":"g"}`,
		`{"kind":"MeshHTTPRoute","name":"r"}`,
	} {
		if _, faults := r.Decode("", doc(top, to)); len(faults) > 0 {
			t.Errorf("%s: %v", top, faults)
		}
	}
	from := func(kind string) string {
		return `"from":[{"targetRef":{"kind":"` + kind + `","name":"n"},` + conf + `}]`
	}
	expect(t, r, doc(`{"kind":"Mesh","proxyTypes":["Sidecar"]}`, to), "spec.to", "selects no gateway")
	expect(t, r, doc(`{"kind":"MeshService","name":"backend"}`, to), "spec.to", "MeshService selects no gateway")
	expect(t, r, doc(`{"kind":"MeshHTTPRoute","name":"r"}`, from("Mesh")), "spec.from", "has no from")
	expect(t, r, doc(`{"kind":"Mesh"}`, from("MeshService")), "spec.from[0].targetRef.kind", "Mesh")
	expect(t, r, doc(`{"kind":"Mesh"}`, from("Mesh")), "spec.from", "proxyTypes: [Sidecar]")
	expect(t, r, doc(`{"kind":"MeshSubset","tags":{"a":"b"},"proxyTypes":["Sidecar","Gateway"]}`, from("Mesh")),
		"spec.from", "proxyTypes: [Sidecar]")
	mesh := `"from":[{"targetRef":{"kind":"Mesh"},` + conf + `}]`
	// Tags may select only sidecars.
	for _, top := range []string{`{"kind":"Mesh","proxyTypes":["Sidecar"]}`, `{"kind":"MeshSubset","tags":{"a":"b"}}`} {
		if _, faults := r.Decode("", doc(top, mesh)); len(faults) > 0 {
			t.Errorf("%s: %v", top, faults)
		}
	}
}

func expect(t *testing.T, r *resource.Registry, doc []byte, field, reason string) {
	t.Helper()
	if !json.Valid(doc) {
		t.Fatalf("not JSON: %s", doc)
	}
	_, faults := r.Decode("", doc)
	for _, f := range faults {
		if f.Field == field && strings.Contains(f.Reason, reason) {
			return
		}
	}
	t.Errorf("%.300s\nwant a fault at %s with %q, got %v", doc, field, reason, faults)
}
