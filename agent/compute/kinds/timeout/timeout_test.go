package timeout_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/timeout"
	legacykind "github.com/nearside-mesh/nearside/agent/compute/kinds/timeout/legacy"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/test/kindtest"
)

func TestCases(t *testing.T) { kindtest.Run(t, "testdata", timeout.Plugin(legacykind.Kind())) }

const (
	head       = `{"type":"MeshTimeout","mesh":"default","name":"t","spec":`
	legacyHead = `{"type":"Timeout","mesh":"default","name":"t","sources":[{"match":{"kuma.io/service":"*"}}],` +
		`"destinations":[{"match":{"kuma.io/service":"*"}}],"conf":`
)

// to returns a MeshTimeout for all destinations.
func to(conf string) string {
	return head + `{"to":[{"targetRef":{"kind":"Mesh"},"default":` + conf + `}]}}`
}

func legacy(conf string) string { return legacyHead + conf + `}` }

// under returns a MeshTimeout with a top-level targetRef.
func under(top, kind, conf string) string {
	ref := `{"kind":"` + kind + `"}`
	if kind != "Mesh" {
		ref = `{"kind":"` + kind + `","name":"n"}`
	}
	return head + `{"targetRef":{"kind":"` + top + `","name":"n"},"to":[{"targetRef":` + ref + `,"default":` +
		conf + `}]}}`
}

func TestRefused(t *testing.T) {
	const conf = "spec.to[0].default"
	for _, c := range []struct{ doc, field, reason string }{
		{to(`{}`), conf, "no timeout is given"},
		{to(`{"http":{}}`), conf + ".http", "no timeout is given"},
		{to(`{"connectionTimeout":"0s"}`), conf + ".connectionTimeout", "give 1ms or more"},
		{to(`{"connectionTimeout":"-1s"}`), conf + ".connectionTimeout", "negative"},
		{to(`{"connectionTimeout":5}`), conf + ".connectionTimeout", "without a unit"},
		{to(`{"connectionTimeout":"1h30"}`), conf + ".connectionTimeout", "not a duration"},
		{to(`{"connectionTimeout":"300000000h"}`), conf + ".connectionTimeout", "not a duration"},
		{to(`{"idleTimeout":"1us"}`), conf + ".idleTimeout", "less than a millisecond"},
		{to(`{"idletimeout":"1s","http":{"requestTimeout":"1s"}}`), conf + ".idletimeout", `did you mean "idleTimeout"`},
		{to(`{"http":{"requestTimeout":"-1s"}}`), conf + ".http.requestTimeout", "negative"},
		{to(`{"http":{"requestTimeout":"1ns"}}`), conf + ".http.requestTimeout", "less than a millisecond"},
		{to(`{"http":{"streamIdleTimeout":"x"}}`), conf + ".http.streamIdleTimeout", "not a duration"},
		{to(`{"http":{"maxStreamDuration":[]}}`), conf + ".http.maxStreamDuration", "a duration"},
		{to(`{"http":{"maxConnectionDuration":"1ns"}}`), conf + ".http.maxConnectionDuration", "less than a millisecond"},
		{to(`{"http":{"requestHeadersTimeout":"1ns"}}`), conf + ".http.requestHeadersTimeout", "less than a millisecond"},
		{head + `{"from":[{"targetRef":{"kind":"MeshSubset","tags":{"a":"b"}},"default":{"idleTimeout":"1s"}}]}}`,
			"spec.from[0].targetRef.kind", "give one of Mesh"},
		{head + `{"from":[{"targetRef":{"kind":"Mesh"},"default":{}}]}}`, "spec.from[0].default", "no timeout is given"},
		{head + `{"targetRef":{"kind":"MeshHTTPRoute","name":"r"},"from":[{"targetRef":{"kind":"Mesh"},"default":{"idleTimeout":"1s"}}]}}`, "spec.from", "has no from"},
		{under("MeshGateway", "MeshService", `{"idleTimeout":"1s"}`), "spec.to[0].targetRef.kind",
			"give one of Mesh, MeshExternalService"},
		{under("MeshHTTPRoute", "MeshService", `{"http":{"requestTimeout":"1s"}}`), "spec.to[0].targetRef.kind",
			"give one of Mesh, MeshExternalService"},
		{under("MeshHTTPRoute", "Mesh", `{"connectionTimeout":"1s"}`), conf + ".connectionTimeout", "many routes"},
		{under("MeshHTTPRoute", "Mesh", `{"idleTimeout":"1s"}`), conf + ".idleTimeout", "many routes"},
		{under("MeshHTTPRoute", "Mesh", `{"http":{"maxStreamDuration":"1s"}}`), conf + ".http.maxStreamDuration",
			"many routes"},
		{under("MeshService", "MeshHTTPRoute", `{"http":{"maxConnectionDuration":"1s"}}`),
			conf + ".http.maxConnectionDuration", "many routes"},
		{under("MeshService", "MeshHTTPRoute", `{"http":{"requestHeadersTimeout":"1s"}}`),
			conf + ".http.requestHeadersTimeout", "many routes"},
		{legacyHead[:len(legacyHead)-len(`,"conf":`)] + `}`, "conf", "missing"},
		{legacy(`{"connectTimeout":"0s"}`), "conf.connectTimeout", "give 1ms or more"},
		{legacy(`{"tcp":{}}`), "conf.tcp", "no timeout is given"},
		{legacy(`{"tcp":{"idleTimeout":"0s"}}`), "conf.tcp.idleTimeout", "give 1ms or more"},
		{legacy(`{"http":{}}`), "conf.http", "no timeout is given"},
		{legacy(`{"http":{"requestTimeout":"-1s"}}`), "conf.http.requestTimeout", "negative"},
		{legacy(`{"http":{"idleTimeout":"0s"}}`), "conf.http.idleTimeout", "give 1ms or more"},
		{legacy(`{"http":{"streamIdleTimeout":"1ns"}}`), "conf.http.streamIdleTimeout", "less than a millisecond"},
		{legacy(`{"http":{"maxStreamDuration":"1ns"}}`), "conf.http.maxStreamDuration", "less than a millisecond"},
		{legacy(`{"grpc":{}}`), "conf.grpc", "no timeout is given"},
		{legacy(`{"grpc":{"streamIdleTimeout":"0s"}}`), "conf.grpc.streamIdleTimeout", "give 1ms or more"},
		{legacy(`{"grpc":{"maxStreamDuration":"1"}}`), "conf.grpc.maxStreamDuration", "not a duration"},
	} {
		_, faults := kinds.Registry().Decode("", []byte(c.doc))
		if len(faults) != 1 || faults[0].Field != c.field || !strings.Contains(faults[0].Reason, c.reason) {
			t.Errorf("%s\nwant one fault at %s with %q, got %v", c.doc, c.field, c.reason, faults)
		}
	}
}

// TestRoundTrip decodes complete confs and checks that they are encoded unchanged, with durations
// in Go's format.
func TestRoundTrip(t *testing.T) {
	const all = `{"connectionTimeout":"2s","idleTimeout":"1h0m0s","http":{"requestTimeout":"0s","streamIdleTimeout":"1ms",` +
		`"maxStreamDuration":"4s","maxConnectionDuration":"5s","requestHeadersTimeout":"500ms"}}`
	const allLegacy = `{"connectTimeout":"1s","tcp":{"idleTimeout":"2s"},"http":{"requestTimeout":"3s","idleTimeout":"4s",` +
		`"streamIdleTimeout":"0s","maxStreamDuration":"0s"},"grpc":{"streamIdleTimeout":"7s","maxStreamDuration":"8s"}}`
	for doc, want := range map[string]string{
		to(all):           all,
		legacy(allLegacy): allLegacy,
		under("MeshHTTPRoute",
			"Mesh", `{"http":{"requestTimeout":"1s"}}`): `{"http":{"requestTimeout":"1s"}}`,
		under("MeshService",
			"MeshHTTPRoute", `{"http":{"streamIdleTimeout":"1s"}}`): `{"http":{"streamIdleTimeout":"1s"}}`,
		under("MeshGateway", "MeshExternalService", `{"idleTimeout":"1s"}`):                `{"idleTimeout":"1s"}`,
		under("MeshServiceSubset", "MeshMultiZoneService", `{"connectionTimeout":"1m5s"}`): `{"connectionTimeout":"1m5s"}`,
	} {
		res, faults := kinds.Registry().Decode("", []byte(doc))
		if len(faults) > 0 || len(res) != 1 {
			t.Errorf("%s: %v", doc, faults)
			continue
		}
		var conf resource.Conf
		switch spec := res[0].Spec.(type) {
		case *resource.Policy:
			conf = spec.To[0].Conf
		case *resource.LegacyPolicy:
			conf = spec.Conf
		}
		if got, err := json.Marshal(conf); err != nil || string(got) != want {
			t.Errorf("%s\nis encoded as %s (%v)", doc, got, err)
		}
	}
}
