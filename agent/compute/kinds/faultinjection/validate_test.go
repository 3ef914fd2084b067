package faultinjection_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

const (
	policyDoc = `{"type":"MeshFaultInjection","mesh":"default","name":"f","spec":{"targetRef":{"kind":"MeshService","name":"backend"},"from":[{"targetRef":{"kind":"Mesh"},"default":%}]}}`
	legacyDoc = `{"type":"FaultInjection","mesh":"default","name":"f","sources":[{"match":{"kuma.io/service":"*"}}],"destinations":[{"match":{"kuma.io/service":"backend"}}],"conf":%}`
)

func document(form, conf string) []byte { return []byte(strings.Replace(form, "%", conf, 1)) }

func TestValid(t *testing.T) {
	r := kinds.Registry()
	for _, doc := range []struct{ form, conf string }{
		{policyDoc, `{}`},
		{policyDoc, `{"http":[]}`},
		{policyDoc, `{"http":[{"abort":{"httpStatus":200,"percentage":0}}]}`},
		{policyDoc, `{"http":[{"abort":{"httpStatus":599,"percentage":"100"}}]}`},
		{policyDoc, `{"http":[{"delay":{"value":"1ns","percentage":"0.0001"}}]}`},
		{policyDoc, `{"http":[{"responseBandwidth":{"limit":"1kbps","percentage":"99.9999"}}]}`},
		{policyDoc, `{"http":[{"responseBandwidth":{"limit":"4294967295 Gbps","percentage":1}}]}`},
		{policyDoc, `{"http":[{"abort":{"httpStatus":500,"percentage":1},"delay":{"value":"1s","percentage":2},"responseBandwidth":{"limit":"5 Mbps","percentage":3}}]}`},
		{legacyDoc, `{"abort":{"httpStatus":500,"percentage":50.5}}`},
		{legacyDoc, `{"responseBandwidth":{"limit":"50 mbps","percentage":50}}`},
		{legacyDoc, `{"responseBandwidth":{"limit":"50gbps","percentage":50}}`},
	} {
		res, faults := r.Decode("", document(doc.form, doc.conf))
		if len(faults) > 0 {
			t.Errorf("%s: %v", doc.conf, faults)
			continue
		}
		out, err := resource.Marshal(res[0])
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(out), doc.conf) {
			t.Errorf("%s is encoded as %s", doc.conf, out)
		}
	}
}

func TestInvalid(t *testing.T) {
	r := kinds.Registry()
	many := make([]string, 101)
	for i := range many {
		many[i] = `{"abort":{"httpStatus":500,"percentage":1}}`
	}
	for _, doc := range []struct{ form, conf, field, reason string }{
		{policyDoc, `{"http":[{}]}`, "http[0]", "is empty"},
		{policyDoc, `{"http":[` + strings.Join(many, ",") + `]}`, "http", "at most 100"},
		{policyDoc, `{"http":[{"abort":{"percentage":1}}]}`, "http[0].abort.httpStatus", "missing"},
		{policyDoc, `{"http":[{"abort":{"httpStatus":199,"percentage":1}}]}`, "http[0].abort.httpStatus", "200 to 599"},
		{policyDoc, `{"http":[{"abort":{"httpStatus":600,"percentage":1}}]}`, "http[0].abort.httpStatus", "200 to 599"},
		{policyDoc, `{"http":[{"abort":{"httpStatus":-1,"percentage":1}}]}`, "http[0].abort.httpStatus", "-1"},
		{policyDoc, `{"http":[{"abort":{"httpStatus":500}}]}`, "http[0].abort.percentage", "missing"},
		{policyDoc, `{"http":[{"abort":{"httpStatus":500,"percentage":101}}]}`,
			"http[0].abort.percentage", "101 is not a percentage"},
		{policyDoc, `{"http":[{"abort":{"httpStatus":500,"percentage":"100.5"}}]}`,
			"http[0].abort.percentage", "100.5 is not a percentage"},
		{policyDoc, `{"http":[{"abort":{"httpStatus":500,"percentage":-1}}]}`,
			"http[0].abort.percentage", "-1 is not a percentage"},
		{policyDoc, `{"http":[{"abort":{"httpStatus":500,"percentage":"ten"}}]}`,
			"http[0].abort.percentage", "not a decimal"},
		{policyDoc, `{"http":[{"abort":{"httpStatus":500,"percentage":"0.00001"}}]}`, "http[0].abort.percentage", "0.0001"},
		{policyDoc, `{"http":[{"delay":{"percentage":1}}]}`, "http[0].delay.value", "missing"},
		{policyDoc, `{"http":[{"delay":{"value":"0s","percentage":1}}]}`, "http[0].delay.value", "more than 0s"},
		{policyDoc, `{"http":[{"delay":{"value":"-1s","percentage":1}}]}`, "http[0].delay.value", "negative"},
		{policyDoc, `{"http":[{"delay":{"value":5,"percentage":1}}]}`, "http[0].delay.value", "without a unit"},
		{policyDoc, `{"http":[{"delay":{"value":"1h30","percentage":1}}]}`, "http[0].delay.value", "not a duration"},
		{policyDoc, `{"http":[{"delay":{"value":"1s","percentage":101}}]}`, "http[0].delay.percentage", "101"},
		{policyDoc, `{"http":[{"responseBandwidth":{"percentage":1}}]}`, "http[0].responseBandwidth.limit", "missing"},
		{policyDoc, `{"http":[{"responseBandwidth":{"limit":"10","percentage":1}}]}`, "http[0].responseBandwidth.limit",
			"kbps, Mbps or Gbps"},
		{policyDoc, `{"http":[{"responseBandwidth":{"limit":"kbps","percentage":1}}]}`, "http[0].responseBandwidth.limit",
			"whole number"},
		{policyDoc, `{"http":[{"responseBandwidth":{"limit":"1.5Mbps","percentage":1}}]}`, "http[0].responseBandwidth.limit",
			"whole number"},
		{policyDoc, `{"http":[{"responseBandwidth":{"limit":"10mbps","percentage":1}}]}`, "http[0].responseBandwidth.limit",
			"kbps, Mbps or Gbps"},
		{policyDoc, `{"http":[{"responseBandwidth":{"limit":"0kbps","percentage":1}}]}`, "http[0].responseBandwidth.limit",
			"at least 1kbps"},
		{policyDoc, `{"http":[{"responseBandwidth":{"limit":"4294967296kbps","percentage":1}}]}`,
			"http[0].responseBandwidth.limit", "out of range"},
		{policyDoc, `{"http":[{"responseBandwidth":{"limit":"1kbps","percentage":101}}]}`,
			"http[0].responseBandwidth.percentage", "101"},
		{policyDoc, `{"http":[{"abrot":{}}]}`, "http[0].abrot", `did you mean "abort"`},
		{legacyDoc, `{}`, "conf", "is empty"},
		{legacyDoc, `{"abort":{"httpStatus":500,"percentage":100.5}}`, "conf.abort.percentage", "100.5"},
		{legacyDoc, `{"responseBandwidth":{"limit":"50","percentage":50}}`, "conf.responseBandwidth.limit", "kbps"},
	} {
		field := doc.field
		if doc.form == policyDoc {
			field = "spec.from[0].default." + field
		}
		expect(t, r, document(doc.form, doc.conf), field, doc.reason)
	}
}

func TestTargets(t *testing.T) {
	r := kinds.Registry()
	to := `"to":[{"targetRef":{"kind":"Mesh"},"default":{"http":[]}}]`
	doc := func(top, rest string) []byte {
		return []byte(`{"type":"MeshFaultInjection","mesh":"default","name":"f","spec":{"targetRef":` + top + `,` +
			rest + `}}`)
	}
	for _, top := range []string{
		`{"kind":"Mesh"}`, `{"kind":"MeshSubset","proxyTypes":["Gateway"]}`, `{"kind":"MeshGateway","name":"g"}`,
	} {
		if _, faults := r.Decode("", doc(top, to)); len(faults) > 0 {
			t.Errorf("%s: %v", top, faults)
		}
	}
	expect(t, r, doc(`{"kind":"Mesh","proxyTypes":["Sidecar"]}`, to), "spec.to", "selects no gateway")
	expect(t, r, doc(`{"kind":"MeshService","name":"backend"}`, to), "spec.to", "MeshService selects no gateway")
	expect(t, r, doc(`{"kind":"Dataplane","name":"backend"}`, to), "spec.to", "Dataplane selects no gateway")
	expect(t, r, doc(`{"kind":"Mesh"}`, `"from":[{"targetRef":{"kind":"Dataplane"},"default":{}}]`),
		"spec.from[0].targetRef.kind", "MeshServiceSubset")
	expect(t, r, doc(`{"kind":"MeshGateway","name":"g"}`, `"from":[{"targetRef":{"kind":"Mesh"},"default":{}}]`),
		"spec.from", "has no from")
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
