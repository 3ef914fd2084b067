package kinds_test

import (
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/kinds"
)

// legacyDocument returns a source-destination policy with a conf.
func legacyDocument(kind, conf string) string {
	const all = `[{"match":{"kuma.io/service":"*"}}]`
	return `{"type":"` + kind + `","mesh":"default","name":"p","sources":` + all + `,"destinations":` + all +
		`,"conf":` + conf + `}`
}

// TestLegacyConfs validates confs and compares the faults; "" for none.
func TestLegacyConfs(t *testing.T) {
	r := kinds.Registry()
	for _, c := range []struct{ kind, conf, field, reason string }{
		{"RateLimit", `{"http":{"requests":5,"interval":"10s","onRateLimit":{"status":423,"headers":[{"key":"X-Limited","value":"true","append":true}]}}}`, "", ""},
		{"RateLimit", `{}`, "conf.http", "missing"},
		{"RateLimit", `{"http":{"interval":"1s"}}`, "conf.http.requests", "missing"},
		{"RateLimit", `{"http":{"requests":0,"interval":"1s"}}`, "conf.http.requests", "1 or more"},
		{"RateLimit", `{"http":{"requests":5}}`, "conf.http.interval", "missing"},
		{"RateLimit", `{"http":{"requests":5,"interval":"50ms"}}`, "conf.http.interval", "more than 50ms"},
		{"RateLimit", `{"http":{"requests":5,"interval":"1s","onRateLimit":{"status":200}}}`,
			"conf.http.onRateLimit.status", "400 to 599"},
		{"RateLimit", `{"http":{"requests":5,"interval":"1s","onRateLimit":{"headers":[{"key":"a b","value":"1"}]}}}`,
			"conf.http.onRateLimit.headers[0].key", "' '"},
		{"RateLimit", `{"http":{"requests":5,"interval":"1s","onRateLimit":{"headers":[{"key":"a","value":"1"},{"key":"A","value":"2"}]}}}`,
			"conf.http.onRateLimit.headers[1].key", "twice"},
		{"RateLimit", `{"http":{"requests":5,"interval":"1s","onRateLimit":{"headers":[{"key":"a","value":"%B%"}]}}}`,
			"conf.http.onRateLimit.headers[0].value", "%%"},
		{"RateLimit", `{"tcp":{}}`, "conf.tcp", ""},
		{"Retry", `{"http":{"numRetries":5,"perTryTimeout":"200ms","backOff":{"baseInterval":"20ms","maxInterval":"1s"},"retriableStatusCodes":[500],"retriableMethods":["GET"],"retryOn":["all_5xx","http3_post_connect_failure"]},"grpc":{"retryOn":["cancelled"]},"tcp":{"maxConnectAttempts":2}}`, "", ""},
		{"Retry", `{}`, "conf", "at least one"},
		{"Retry", `{"tcp":{}}`, "conf.tcp", "maxConnectAttempts"},
		{"Retry", `{"tcp":{"maxConnectAttempts":0}}`, "conf.tcp.maxConnectAttempts", "1 or more"},
		{"Retry", `{"http":{}}`, "conf.http", "no field is set"},
		{"Retry", `{"grpc":{}}`, "conf.grpc", "no field is set"},
		{"Retry", `{"http":{"retryOn":["5xx"]}}`, "conf.http.retryOn[0]", "all_5xx"},
		{"Retry", `{"grpc":{"retryOn":["reset"]}}`, "conf.grpc.retryOn[0]", "unavailable"},
		{"Retry", `{"http":{"retriableMethods":["get"]}}`, "conf.http.retriableMethods[0]", "GET"},
		{"Retry", `{"http":{"retriableStatusCodes":[99]}}`, "conf.http.retriableStatusCodes[0]", "100 to 599"},
		{"Retry", `{"http":{"perTryTimeout":"0s"}}`, "conf.http.perTryTimeout", "1ms or more"},
		{"Retry", `{"http":{"backOff":{"baseInterval":"2s","maxInterval":"1s"}}}`,
			"conf.http.backOff.maxInterval", "shorter"},
		{"HealthCheck", `{"interval":"10s","timeout":"2s","unhealthyThreshold":3,"healthyThreshold":1,"tcp":{"send":"Zm9v","receive":["YmFy"]},"http":{"path":"/h","requestHeadersToAdd":[{"append":false,"header":{"key":"Content-Type","value":"a"}}],"expectedStatuses":[200]}}`, "", ""},
		{"HealthCheck", `{"timeout":"2s","unhealthyThreshold":3,"healthyThreshold":1}`, "conf.interval", "missing"},
		{"HealthCheck", `{"interval":"10s","unhealthyThreshold":3,"healthyThreshold":1}`, "conf.timeout", "missing"},
		{"HealthCheck", `{"interval":"10s","timeout":"2s","unhealthyThreshold":0,"healthyThreshold":1}`,
			"conf.unhealthyThreshold", "1 or more"},
		{"HealthCheck", `{"interval":"10s","timeout":"2s","unhealthyThreshold":3}`, "conf.healthyThreshold", "missing"},
		{"HealthCheck", `{"interval":"10s","http":{"path":"h"}}`, "conf.http.path", "must begin with /"},
		{"HealthCheck", `{"interval":"10s","http":{"path":"/","expectedStatuses":[99]}}`, "conf.http.expectedStatuses[0]",
			"100 to 599"},
		{"HealthCheck", `{"interval":"10s","http":{"requestHeadersToAdd":[{"header":{"key":"","value":"a"}}]}}`,
			"conf.http.requestHeadersToAdd[0].header.key", "missing"},
		{"HealthCheck", `{"interval":"10s","tcp":{"receive":[""]}}`, "conf.tcp.receive[0]", "empty"},
		{"HealthCheck", `{"interval":"10s","grpc":{}}`, "conf.grpc", ""},
		// more kinds
	} {
		doc := legacyDocument(c.kind, c.conf)
		if c.field != "" {
			expectFault(t, r, doc, c.field, c.reason)
		} else if _, faults := r.Decode("", []byte(doc)); len(faults) > 0 {
			t.Errorf("%s: %v", doc, faults)
		}
	}
}
