package healthcheck_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/healthcheck"
	legacykind "github.com/nearside-mesh/nearside/agent/compute/kinds/healthcheck/legacy"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/test/kindtest"
)

func TestCases(t *testing.T) { kindtest.Run(t, "testdata", healthcheck.Plugin(legacykind.Kind())) }

func TestMigrations(t *testing.T) {
	kindtest.RunMigrations(t, "testdata/migrate", healthcheck.Plugin(legacykind.Kind()))
}

// to returns a MeshHealthCheck for all destinations.
func to(conf string) string {
	return `{"type":"MeshHealthCheck","mesh":"default","name":"h","spec":{"to":[{"targetRef":{"kind":"Mesh"},"default":` +
		conf + `}]}}`
}

// with returns a policy with a field next to a valid probe.
func with(field string) string { return to(`{"grpc":{},` + field + `}`) }

func TestRefused(t *testing.T) {
	const conf = "spec.to[0].default"
	header := func(list, h string) string {
		return to(`{"http":{"requestHeadersToAdd":{"` + list + `":[` + h + `]}}}`)
	}
	many := strings.Repeat(`{"name":"a","value":"b"},`, 17)
	for _, c := range []struct{ doc, field, reason string }{
		{to(`{}`), conf, "at least one of http, tcp, grpc"},
		{with(`"interval":"0s"`), conf + ".interval", "1ms or more"},
		{with(`"interval":"-10s"`), conf + ".interval", "negative"},
		{with(`"interval":10`), conf + ".interval", "without a unit"},
		{with(`"timeout":"0s"`), conf + ".timeout", "1ms or more"},
		{with(`"unhealthyThreshold":0`), conf + ".unhealthyThreshold", "1 or more"},
		{with(`"unhealthyThreshold":-3`), conf + ".unhealthyThreshold", "out of range"},
		{with(`"healthyThreshold":0`), conf + ".healthyThreshold", "1 or more"},
		{with(`"initialJitter":"0s"`), conf + ".initialJitter", "1ms or more"},
		{with(`"intervalJitter":"1us"`), conf + ".intervalJitter", "1ms or more"},
		{with(`"intervalJitterPercent":101`), conf + ".intervalJitterPercent", "0 to 100"},
		{with(`"healthyPanicThreshold":"101"`), conf + ".healthyPanicThreshold", "0 to 100"},
		{with(`"healthyPanicThreshold":"x"`), conf + ".healthyPanicThreshold", "not a decimal number"},
		{with(`"noTrafficInterval":"0s"`), conf + ".noTrafficInterval", "1ms or more"},
		{with(`"eventLogPath":"#not-a-path"`), conf + ".eventLogPath", "must begin with /"},
		{with(`"eventLogPath":"/a\nb"`), conf + ".eventLogPath", "line break"},
		{with(`"failTrafficOnPanic":"yes"`), conf + ".failTrafficOnPanic", "boolean"},
		{to(`{"tcp":{"send":"not base64!"}}`), conf + ".tcp.send", "base64"},
		{to(`{"tcp":{"receive":["Zm9v",""]}}`), conf + ".tcp.receive[1]", "empty"},
		{to(`{"tcp":{"receive":[` + strings.Repeat(`"Zm9v",`, 64) + `"Zm9v"]}}`), conf + ".tcp.receive", "at most 64"},
		{to(`{"http":{"path":""}}`), conf + ".http.path", "empty"},
		{to(`{"http":{"path":"health"}}`), conf + ".http.path", "must begin with /"},
		{to(`{"http":{"path":"/` + strings.Repeat("a", 4096) + `"}}`), conf + ".http.path", "at most 4096"},
		{to(`{"http":{"expectedStatuses":[200,99]}}`), conf + ".http.expectedStatuses[1]", "100 to 599"},
		{to(`{"http":{"expectedStatuses":[600]}}`), conf + ".http.expectedStatuses[0]", "100 to 599"},
		{header("set", `{"value":"a"}`), conf + ".http.requestHeadersToAdd.set[0].name", "missing"},
		{header("add", `{"name":"X-A","value":"a"}`), conf + ".http.requestHeadersToAdd.add[0].name", "lower case"},
		{header("add", `{"name":":path","value":"a"}`), conf + ".http.requestHeadersToAdd.add[0].name", "not allowed"},
		{header("set", `{"name":"host","value":"a"}`), conf + ".http.requestHeadersToAdd.set[0].name", "name of the cluster"},
		{header("set", `{"name":"a","value":"b"},{"name":"a","value":"c"}`),
			conf + ".http.requestHeadersToAdd.set[1].name", "twice"},
		{header("set", `{"name":"a","value":"b\u0001"}`), conf + ".http.requestHeadersToAdd.set[0].value",
			"control character"},
		{header("add", many[:len(many)-1]), conf + ".http.requestHeadersToAdd.add", "at most 16"},
		{to(`{"grpc":{"serviceName":"a\nb"}}`), conf + ".grpc.serviceName", "line break"},
		{to(`{"grpc":{"authority":"a\rb"}}`), conf + ".grpc.authority", "line break"},
		{`{"type":"MeshHealthCheck","mesh":"default","name":"h","spec":{"from":[]}}`, "spec.from", "has no from"},
	} {
		_, faults := kinds.Registry().Decode("", []byte(c.doc))
		found := false
		for _, f := range faults {
			found = found || f.Field == c.field && strings.Contains(f.Reason, c.reason)
		}
		if !found || len(faults) > 2 {
			t.Errorf("%s\nwant a fault at %s with %q, got %v", c.doc, c.field, c.reason, faults)
		}
	}
}

// TestRoundTrip decodes complete confs and checks that they are encoded unchanged.
func TestRoundTrip(t *testing.T) {
	for _, want := range []string{
		`{"interval":"10s","timeout":"2s","unhealthyThreshold":3,"healthyThreshold":1,"initialJitter":"5s","intervalJitter":"6s",` +
			`"intervalJitterPercent":10,"healthyPanicThreshold":"62.9","failTrafficOnPanic":true,"eventLogPath":"/tmp/health-check.log",` +
			`"alwaysLogHealthCheckFailures":true,"noTrafficInterval":"10s","tcp":{"disabled":true,"send":"Zm9v","receive":["YmFy","YmF6"]},` +
			`"http":{"disabled":false,"path":"/health","requestHeadersToAdd":{"set":[{"name":"content-type","value":"application/json"}],` +
			`"add":[{"name":"accept","value":"application/json,50%"}]},"expectedStatuses":[200,201]},` +
			`"grpc":{"disabled":false,"serviceName":"a","authority":"b"},"reuseConnection":false}`,
		`{"tcp":{}}`,
		`{"http":{}}`,
		`{"healthyPanicThreshold":0,"grpc":{}}`,
	} {
		res, faults := kinds.Registry().Decode("", []byte(to(want)))
		if len(faults) > 0 || len(res) != 1 {
			t.Errorf("%s: %v", want, faults)
			continue
		}
		if got, err := json.Marshal(res[0].Spec.(*resource.Policy).To[0].Conf); err != nil || string(got) != want {
			t.Errorf("%s\nis encoded as %s (%v)", want, got, err)
		}
	}
}
