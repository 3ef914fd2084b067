package retry_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/retry"
	legacykind "github.com/nearside-mesh/nearside/agent/compute/kinds/retry/legacy"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/test/kindtest"
)

func TestCases(t *testing.T) { kindtest.Run(t, "testdata", retry.Plugin(legacykind.Kind())) }

func TestMigrations(t *testing.T) {
	kindtest.RunMigrations(t, "testdata/migrate", retry.Plugin(legacykind.Kind()))
}

const head = `{"type":"MeshRetry","mesh":"default","name":"r","spec":`

// to returns a MeshRetry for all destinations.
func to(conf string) string {
	return head + `{"to":[{"targetRef":{"kind":"Mesh"},"default":` + conf + `}]}}`
}

// under returns a MeshRetry with a top-level targetRef.
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
		{to(`{}`), conf, "at least one of tcp, http, grpc"},
		{to(`{"tcp":{}}`), conf + ".tcp", "give maxConnectAttempt"},
		{to(`{"tcp":{"maxConnectAttempt":0}}`), conf + ".tcp.maxConnectAttempt", "1 or more"},
		{to(`{"http":{}}`), conf + ".http", "no field is set"},
		{to(`{"grpc":{}}`), conf + ".grpc", "no field is set"},
		{to(`{"http":{"numRetries":-1}}`), conf + ".http.numRetries", "out of range"},
		{to(`{"http":{"perTryTimeout":"-1s"}}`), conf + ".http.perTryTimeout", "negative"},
		{to(`{"http":{"perTryTimeout":"1us"}}`), conf + ".http.perTryTimeout", "less than a millisecond"},
		{to(`{"http":{"backOff":{}}}`), conf + ".http.backOff", "baseInterval, maxInterval or both"},
		{to(`{"http":{"backOff":{"baseInterval":"0s"}}}`), conf + ".http.backOff.baseInterval", "more than 0s"},
		{to(`{"http":{"backOff":{"maxInterval":"0s"}}}`), conf + ".http.backOff.maxInterval", "1ms or more"},
		{to(`{"http":{"backOff":{"baseInterval":"2s","maxInterval":"1s"}}}`), conf + ".http.backOff.maxInterval",
			"1s is shorter than the baseInterval of 2s"},
		{to(`{"grpc":{"backOff":{"maxInterval":"24ms"}}}`), conf + ".grpc.backOff.maxInterval",
			"shorter than the baseInterval of 25ms"},
		{to(`{"http":{"rateLimitedBackOff":{}}}`), conf + ".http.rateLimitedBackOff.resetHeaders", "no header"},
		{to(`{"grpc":{"rateLimitedBackOff":{"maxInterval":"0s","resetHeaders":[{"name":"a","format":"Seconds"}]}}}`),
			conf + ".grpc.rateLimitedBackOff.maxInterval", "1ms or more"},
		{to(`{"http":{"rateLimitedBackOff":{"resetHeaders":[{"name":"","format":"Seconds"}]}}}`),
			conf + ".http.rateLimitedBackOff.resetHeaders[0].name", "missing"},
		{to(`{"http":{"rateLimitedBackOff":{"resetHeaders":[{"name":"a","format":"Minutes"}]}}}`),
			conf + ".http.rateLimitedBackOff.resetHeaders[0].format", "Seconds, UnixTimestamp"},
		{to(`{"http":{"retryOn":["WRONG"]}}`), conf + ".http.retryOn[0]", `"WRONG" is not a condition`},
		{to(`{"http":{"retryOn":["5xx","5XX"]}}`), conf + ".http.retryOn[1]", "not a condition"},
		{to(`{"http":{"retryOn":["reset"]}}`), conf + ".http.retryOn[0]", "GatewayError"},
		{to(`{"http":{"retryOn":["gateway-error,reset"]}}`), conf + ".http.retryOn[0]", "not a condition"},
		{to(`{"http":{"retryOn":["HttpMethodGET"]}}`), conf + ".http.retryOn[0]", "HttpMethod with Connect"},
		{to(`{"http":{"retryOn":["HttpMethod"]}}`), conf + ".http.retryOn[0]", "not a condition"},
		{to(`{"http":{"retryOn":[600]}}`), conf + ".http.retryOn[0]", "100 to 599"},
		{to(`{"http":{"retryOn":["0503"]}}`), conf + ".http.retryOn[0]", "100 to 599"},
		{to(`{"http":{"retryOn":[50.3]}}`), conf + ".http.retryOn[0]", "not a condition"},
		{to(`{"http":{"retryOn":[{"a":1}]}}`), conf + ".http.retryOn[0]", "not a condition"},
		{to(`{"http":{"retryOn":[""]}}`), conf + ".http.retryOn[0]", "not a condition"},
		{to(`{"http":{"retryOn":[` + strings.Repeat(`503,`, 64) + `503]}}`), conf + ".http.retryOn", "at most 64"},
		{to(`{"grpc":{"retryOn":["500"]}}`), conf + ".grpc.retryOn[0]", "Canceled, DeadlineExceeded"},
		{to(`{"grpc":{"retryOn":["Unavailable","reset"]}}`), conf + ".grpc.retryOn[1]", "not a condition"},
		{to(`{"http":{"retriableRequestHeaders":[{"name":"X"}]}}`), conf + ".http.retriableRequestHeaders[0].name",
			"lower case"},
		{to(`{"http":{"retriableResponseHeaders":[{"name":"a","type":"EXACT"}]}}`),
			conf + ".http.retriableResponseHeaders[0].type", "Exact, Prefix"},
		{to(`{"http":{"retriableResponseHeaders":[{"name":"a","type":"RegularExpression","value":"("}]}}`),
			conf + ".http.retriableResponseHeaders[0].value", "RE2"},
		{to(`{"http":{"retriableResponseHeaders":[{"name":"a","type":"Prefix"}]}}`),
			conf + ".http.retriableResponseHeaders[0].value", "empty"},
		{to(`{"http":{"hostSelection":[{"predicate":"Omit"}]}}`), conf + ".http.hostSelection[0].predicate",
			"OmitPreviousHosts"},
		{to(`{"http":{"hostSelection":[{"predicate":"OmitHostsWithTags"}]}}`),
			conf + ".http.hostSelection[0].tags", "no tag"},
		{to(`{"http":{"hostSelection":[{"predicate":"OmitPreviousPriorities"}]}}`),
			conf + ".http.hostSelection[0].updateFrequency", "must be at least 1"},
		{to(`{"http":{"hostSelection":[{"predicate":"OmitPreviousPriorities","updateFrequency":0}]}}`),
			conf + ".http.hostSelection[0].updateFrequency", "must be at least 1"},
		{to(`{"http":{"hostSelection":[{"predicate":"OmitPreviousPriorities","updateFrequency":1},{"predicate":"OmitPreviousPriorities","updateFrequency":1}]}}`),
			conf + ".http.hostSelection[1].predicate", "twice"},
		{to(`{"http":{"numRetries":1,"hostSelectionMaxAttempts":0}}`), conf + ".http.hostSelectionMaxAttempts", "1 or more"},
		{under("MeshGateway", "MeshService", `{"http":{"numRetries":1}}`), "spec.to[0].targetRef.kind",
			"Mesh, MeshExternalService"},
		{under("MeshHTTPRoute", "MeshService", `{"http":{"numRetries":1}}`), "spec.to[0].targetRef.kind",
			"Mesh, MeshExternalService"},
		{under("MeshService", "MeshHTTPRoute", `{"tcp":{"maxConnectAttempt":1}}`), conf + ".tcp", "applies to requests"},
	} {
		_, faults := kinds.Registry().Decode("", []byte(c.doc))
		if len(faults) != 1 || faults[0].Field != c.field || !strings.Contains(faults[0].Reason, c.reason) {
			t.Errorf("%s\nwant one fault at %s with %q, got %v", c.doc, c.field, c.reason, faults)
		}
	}
}

// TestNoItems checks that a policy may have no item.
func TestNoItems(t *testing.T) {
	for _, doc := range []string{head + `{"to":[]}}`, head + `{}}`} {
		if _, faults := kinds.Registry().Decode("", []byte(doc)); len(faults) > 0 {
			t.Errorf("%s: %v", doc, faults)
		}
	}
}

// TestRoundTrip decodes complete confs and checks that they are encoded unchanged, with statuses as
// strings.
func TestRoundTrip(t *testing.T) {
	const common = `"numRetries":10,"perTryTimeout":"20s","backOff":{"baseInterval":"15s","maxInterval":"20m0s"},` +
		`"rateLimitedBackOff":{"resetHeaders":[{"name":"retry-after","format":"Seconds"},{"name":"x-r","format":"UnixTimestamp"}],"maxInterval":"21m0s"},`
	const all = `{"tcp":{"maxConnectAttempt":5},"http":{` + common +
		`"retryOn":["5xx","GatewayError","Reset","Retriable4xx","ConnectFailure",` +
		`"EnvoyRatelimited","RefusedStream","Http3PostConnectFailure","HttpMethodConnect","HttpMethodTrace","500","503"],` +
		`"retriableResponseHeaders":[{"type":"Prefix","name":"a","value":"b"},{"type":"RegularExpression","name":"a","value":".*"}],` +
		`"retriableRequestHeaders":[{"type":"Present","name":"a"},{"name":"a","value":"b"},{"type":"Absent","name":"a"}],` +
		`"hostSelection":[{"predicate":"OmitPreviousHosts"},{"predicate":"OmitHostsWithTags","tags":{"a":"b"}},` +
		`{"predicate":"OmitPreviousPriorities","updateFrequency":2}],"hostSelectionMaxAttempts":2},` +
		`"grpc":{` + common + `"retryOn":["Canceled","DeadlineExceeded","Internal","ResourceExhausted","Unavailable"]}}`
	for doc, want := range map[string]string{
		to(all): all,
		to(strings.Replace(all, `"503"`, `503`, 1)):                        all,
		to(`{"http":{"numRetries":0}}`):                                    `{"http":{"numRetries":0}}`,
		to(`{"http":{"backOff":{"baseInterval":"1us"}}}`):                  `{"http":{"backOff":{"baseInterval":"1µs"}}}`,
		under("MeshHTTPRoute", "Mesh", `{"grpc":{"numRetries":1}}`):        `{"grpc":{"numRetries":1}}`,
		under("MeshService", "MeshHTTPRoute", `{"http":{"numRetries":1}}`): `{"http":{"numRetries":1}}`,
	} {
		res, faults := kinds.Registry().Decode("", []byte(doc))
		if len(faults) > 0 || len(res) != 1 {
			t.Errorf("%s: %v", doc, faults)
			continue
		}
		if got, err := json.Marshal(res[0].Spec.(*resource.Policy).To[0].Conf); err != nil || string(got) != want {
			t.Errorf("%s\nis encoded as %s (%v)", doc, got, err)
		}
	}
}
