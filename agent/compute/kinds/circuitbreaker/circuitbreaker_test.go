package circuitbreaker_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/circuitbreaker"
	legacykind "github.com/nearside-mesh/nearside/agent/compute/kinds/circuitbreaker/legacy"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/test/kindtest"
)

func TestCases(t *testing.T) { kindtest.Run(t, "testdata", circuitbreaker.Plugin(legacykind.Kind())) }

// to returns a MeshCircuitBreaker for all destinations.
func to(conf string) string {
	return `{"type":"MeshCircuitBreaker","mesh":"default","name":"c","spec":{"to":[{"targetRef":{"kind":"Mesh"},"default":` + conf + `}]}}`
}

func outlier(detectors string) string {
	return to(`{"outlierDetection":{"detectors":` + detectors + `}}`)
}

func legacy(conf string) string {
	return `{"type":"CircuitBreaker","mesh":"default","name":"c","sources":[{"match":{"kuma.io/service":"*"}}],` +
		`"destinations":[{"match":{"kuma.io/service":"*"}}],"conf":` + conf + `}`
}

func TestRefused(t *testing.T) {
	const (
		conf      = "spec.to[0].default"
		limits    = conf + ".connectionLimits"
		detection = conf + ".outlierDetection"
		detectors = detection + ".detectors"
		on        = `"detectors":{"totalFailures":{"consecutive":1}}`
	)
	for _, c := range []struct{ doc, field, reason string }{
		{to(`{}`), conf, "is empty"},
		{to(`{"connectionLimits":{"maxConnections":0}}`), limits + ".maxConnections", "1 or more"},
		{to(`{"connectionLimits":{"maxConnectionPools":0}}`), limits + ".maxConnectionPools", "1 or more"},
		{to(`{"connectionLimits":{"maxPendingRequests":0}}`), limits + ".maxPendingRequests", "1 or more"},
		{to(`{"connectionLimits":{"maxRetries":0}}`), limits + ".maxRetries", "1 or more"},
		{to(`{"connectionLimits":{"maxRequests":0}}`), limits + ".maxRequests", "1 or more"},
		{to(`{"connectionLimits":{"maxRequests":4294967296}}`), limits + ".maxRequests", "out of range"},
		{to(`{"connectionLimits":{"maxRequests":-1}}`), limits + ".maxRequests", "out of range"},
		{to(`{"connectionLimits":{"maxRequests":"5"}}`), limits + ".maxRequests", "a string"},
		{to(`{"outlierDetection":{}}`), detectors, "no detector"},
		{to(`{"outlierDetection":{"disabled":false}}`), detectors, "no detector"},
		{outlier(`{}`), detectors, "no detector"},
		{to(`{"outlierDetection":{"interval":"0s",` + on + `}}`), detection + ".interval", "1ms or more"},
		{to(`{"outlierDetection":{"interval":"-1s",` + on + `}}`), detection + ".interval", "negative"},
		{to(`{"outlierDetection":{"baseEjectionTime":"5",` + on + `}}`), detection + ".baseEjectionTime", "not a duration"},
		{to(`{"outlierDetection":{"baseEjectionTime":"1us",` + on + `}}`), detection + ".baseEjectionTime", "1ms or more"},
		{to(`{"outlierDetection":{"maxEjectionPercent":101,` + on + `}}`), detection + ".maxEjectionPercent", "0 to 100"},
		{to(`{"outlierDetection":{"healthyPanicThreshold":"100.1",` + on + `}}`), detection + ".healthyPanicThreshold",
			"0 to 100"},
		{outlier(`{"totalFailures":{"consecutive":0}}`), detectors + ".totalFailures.consecutive", "1 or more"},
		{outlier(`{"gatewayFailures":{"consecutive":0}}`), detectors + ".gatewayFailures.consecutive", "1 or more"},
		{outlier(`{"localOriginFailures":{"consecutive":0}}`), detectors + ".localOriginFailures.consecutive", "1 or more"},
		{outlier(`{"successRate":{"minimumHosts":0}}`), detectors + ".successRate.minimumHosts", "1 or more"},
		{outlier(`{"successRate":{"requestVolume":0}}`), detectors + ".successRate.requestVolume", "1 or more"},
		{outlier(`{"successRate":{"standardDeviationFactor":0}}`), detectors + ".successRate.standardDeviationFactor",
			"not positive"},
		{outlier(`{"successRate":{"standardDeviationFactor":"-1.5"}}`), detectors + ".successRate.standardDeviationFactor",
			"-1.5 is not positive"},
		{outlier(`{"successRate":{"standardDeviationFactor":"0.0001"}}`), detectors + ".successRate.standardDeviationFactor",
			"too small"},
		{outlier(`{"successRate":{"standardDeviationFactor":4294968}}`), detectors + ".successRate.standardDeviationFactor",
			"too large"},
		{outlier(`{"successRate":{"standardDeviationFactor":"1.9x"}}`), detectors + ".successRate.standardDeviationFactor",
			"not a decimal number"},
		{outlier(`{"failurePercentage":{"minimumHosts":0}}`), detectors + ".failurePercentage.minimumHosts", "1 or more"},
		{outlier(`{"failurePercentage":{"requestVolume":0}}`), detectors + ".failurePercentage.requestVolume", "1 or more"},
		{outlier(`{"failurePercentage":{"threshold":101}}`), detectors + ".failurePercentage.threshold",
			"101 is not a percentage"},
		{legacy(`{}`), "conf", "is empty"},
		{legacy(`{"detectors":{}}`), "conf.detectors", "no detector"},
		{legacy(`{"thresholds":{}}`), "conf.thresholds", "no limit"},
		{legacy(`{"interval":"0s","thresholds":{"maxRetries":1}}`), "conf.interval", "1ms or more"},
		{legacy(`{"baseEjectionTime":"0s","thresholds":{"maxRetries":1}}`), "conf.baseEjectionTime", "1ms or more"},
		{legacy(`{"maxEjectionPercent":101,"thresholds":{"maxRetries":1}}`), "conf.maxEjectionPercent", "0 to 100"},
		{legacy(`{"detectors":{"failure":{"threshold":101}}}`), "conf.detectors.failure.threshold", "0 to 100"},
		{legacy(`{"detectors":{"standardDeviation":{"factor":0}}}`), "conf.detectors.standardDeviation.factor",
			"not positive"},
	} {
		_, faults := kinds.Registry().Decode("", []byte(c.doc))
		if len(faults) != 1 || faults[0].Field != c.field || !strings.Contains(faults[0].Reason, c.reason) {
			t.Errorf("%s\nwant one fault at %s with %q, got %v", c.doc, c.field, c.reason, faults)
		}
	}
}

// TestRoundTrip decodes complete confs and checks that they are encoded unchanged.
func TestRoundTrip(t *testing.T) {
	const all = `{"connectionLimits":{"maxConnections":1,"maxConnectionPools":2,"maxPendingRequests":3,"maxRetries":4,"maxRequests":5},` + `"outlierDetection":{"disabled":false,"interval":"1s","baseEjectionTime":"2s","maxEjectionPercent":0,"splitExternalAndLocalErrors":true,` + `"detectors":{"totalFailures":{"consecutive":1},"gatewayFailures":{"consecutive":2},"localOriginFailures":{"consecutive":3},` +
		`"successRate":{"minimumHosts":1,"requestVolume":2,"standardDeviationFactor":"1.33"},` +
		`"failurePercentage":{"minimumHosts":1,"requestVolume":2,"threshold":100}},"healthyPanicThreshold":62.9}}`
	const allLegacy = `{"interval":"1s","baseEjectionTime":"2s","maxEjectionPercent":3,"splitExternalAndLocalErrors":false,` +
		`"detectors":{"totalErrors":{"consecutive":1},"gatewayErrors":{"consecutive":2},"localErrors":{"consecutive":3},` +
		`"standardDeviation":{"requestVolume":4,"minimumHosts":5,"factor":1.33},"failure":{"minimumHosts":6,"requestVolume":7,"threshold":8}},` +
		`"thresholds":{"maxConnections":1,"maxPendingRequests":2,"maxRetries":3,"maxRequests":4}}`
	for doc, want := range map[string]string{
		to(all):           all,
		legacy(allLegacy): allLegacy,
		to(`{"outlierDetection":{"disabled":true}}`):             `{"outlierDetection":{"disabled":true}}`,
		outlier(`{"successRate":{"standardDeviationFactor":2}}`): `{"outlierDetection":{"detectors":{"successRate":{"standardDeviationFactor":2}}}}`,
		outlier(
			`{"totalFailures":{}}`): `{"outlierDetection":{"detectors":{"totalFailures":{}}}}`,
		legacy(`{"detectors":{"totalErrors":{},"localErrors":{}}}`): `{"detectors":{"totalErrors":{},"localErrors":{}}}`,
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
