package loadbalancing_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/loadbalancing"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/test/kindtest"
)

func TestCases(t *testing.T) { kindtest.Run(t, "testdata", loadbalancing.Plugin()) }

const (
	toBackend = `{"kind":"MeshService","name":"backend"}`
	toRoute   = `{"kind":"MeshHTTPRoute","name":"r"}`
)

// decode decodes a policy with one to item.
func decode(top, to, conf string) ([]*resource.Resource, resource.Faults) {
	return kinds.Registry().Decode("", fmt.Appendf(nil,
		`{"type":"MeshLoadBalancingStrategy","mesh":"default","name":"p","spec":{"targetRef":%s,"to":[{"targetRef":%s,"default":%s}]}}`, top, to, conf))
}

// hashing returns a conf with one hash policy.
func hashing(policy string) string {
	return `{"loadBalancer":{"type":"RingHash","ringHash":{"hashPolicies":[` + policy + `]}}}`
}

func TestAccepted(t *testing.T) {
	for _, conf := range []string{
		`{}`,
		`{"loadBalancer":{"type":"RoundRobin","roundRobin":{}}}`,
		`{"loadBalancer":{"type":"Random"}}`,
		`{"loadBalancer":{"type":"LeastRequest","leastRequest":{"choiceCount":2,"activeRequestBias":"1.3"}}}`,
		`{"loadBalancer":{"type":"LeastRequest","leastRequest":{"activeRequestBias":0}}}`,
		`{"loadBalancer":{"type":"RingHash","ringHash":{"hashFunction":"MurmurHash2","minRingSize":100,"maxRingSize":1000}}}`,
		`{"loadBalancer":{"type":"RingHash","ringHash":{"maxRingSize":1024}}}`,
		`{"loadBalancer":{"type":"Maglev","maglev":{"tableSize":5000011,"hashPolicies":[]}}}`,
		hashing(`{"type":"Header","terminal":true,"header":{"name":"X-User"}}`),
		hashing(`{"type":"Header","header":{"name":":path"}}`),
		hashing(`{"type":"Cookie","cookie":{"name":"sid","ttl":"1h0m0s","path":"/shop"}}`),
		hashing(`{"type":"Connection","connection":{"sourceIP":true}}`),
		hashing(`{"type":"SourceIP","connection":{}}`),
		hashing(`{"type":"QueryParameter","queryParameter":{"name":"user"}}`),
		hashing(`{"type":"FilterState","filterState":{"key":"a.b"}}`),
		`{"hashPolicies":[{"type":"Header","header":{"name":"x-user"}}],"loadBalancer":{"type":"LeastRequest"}}`,
		`{"localityAwareness":{"disabled":true}}`,
		`{"localityAwareness":{"localZone":{"affinityTags":[{"key":"k8s/node"},{"key":"k8s/az"}]}}}`,
		`{"localityAwareness":{"localZone":{"affinityTags":[{"key":"a","weight":4294967293},{"key":"b","weight":1}]}}}`,
		`{"localityAwareness":{"crossZone":{"failover":[{"from":{"zones":["a"]},"to":{"type":"Only","zones":["b"]}},{"to":{"type":"AnyExcept","zones":["c"]}},{"to":{"type":"Any"}},{"to":{"type":"None","zones":[]}}],"failoverThreshold":{"percentage":"70.5"}}}}`,
	} {
		rs, faults := decode(`{"kind":"Mesh"}`, toBackend, conf)
		if len(faults) > 0 {
			t.Errorf("%s: %v", conf, faults)
			continue
		}
		out, err := json.Marshal(rs[0].Spec.(*resource.Policy).To[0].Conf)
		if err != nil || !sameJSON(t, string(out), conf) {
			t.Errorf("%s\nis encoded as %s (%v)", conf, out, err)
		}
	}
}

func sameJSON(t *testing.T, a, b string) bool {
	t.Helper()
	canonical := func(s string) string {
		var v any
		if err := json.Unmarshal([]byte(s), &v); err != nil {
			t.Fatal(err)
		}
		out, _ := json.Marshal(v)
		return string(out)
	}
	return canonical(a) == canonical(b)
}

func TestRefused(t *testing.T) {
	const lb, local, cross = "loadBalancer.", "localityAwareness.localZone.affinityTags", "localityAwareness.crossZone."
	tags := func(list string) string { return `{"localityAwareness":{"localZone":{"affinityTags":[` + list + `]}}}` }
	failover := func(rule string) string {
		return `{"localityAwareness":{"crossZone":{"failover":[` + rule + `]}}}`
	}
	balancer := func(s string) string { return `{"loadBalancer":` + s + `}` }
	for _, c := range []struct{ conf, field, reason string }{
		{balancer(`{}`), lb + "type", "missing: give one of RoundRobin"},
		{balancer(`{"type":"ringHash"}`), lb + "type", `"ringHash" is not allowed`},
		{balancer(`{"type":"LeastRequest","leastRequest":{"choiceCount":1}}`), lb + "leastRequest.choiceCount",
			"give at least 2"},
		{balancer(`{"type":"LeastRequest","leastRequest":{"activeRequestBias":-1}}`), lb + "leastRequest.activeRequestBias",
			"-1 is out of range: must be at least 0"},
		{balancer(`{"type":"LeastRequest","leastRequest":{"activeRequestBias":"much"}}`),
			lb + "leastRequest.activeRequestBias", "not a decimal number"},
		{balancer(`{"type":"RingHash","ringHash":{"hashFunction":"SHA1"}}`), lb + "ringHash.hashFunction",
			"XXHash, MurmurHash2"},
		{balancer(`{"type":"RingHash","ringHash":{"minRingSize":0}}`), lb + "ringHash.minRingSize", "1 to 8000000"},
		{balancer(`{"type":"RingHash","ringHash":{"maxRingSize":8000001}}`), lb + "ringHash.maxRingSize", "1 to 8000000"},
		{balancer(`{"type":"RingHash","ringHash":{"minRingSize":2000,"maxRingSize":1999}}`), lb + "ringHash.maxRingSize",
			"1999 is less than minRingSize (2000)"},
		{balancer(`{"type":"RingHash","ringHash":{"maxRingSize":1023}}`), lb + "ringHash.maxRingSize",
			"1024, which is the default"},
		{balancer(`{"type":"Maglev","maglev":{"tableSize":5000012}}`), lb + "maglev.tableSize", "1 to 5000011"},
		{balancer(`{"type":"Maglev","maglev":{"tableSize":0}}`), lb + "maglev.tableSize", "1 to 5000011"},
		{balancer(`{"type":"Maglev","maglev":{"tableSize":65536}}`), lb + "maglev.tableSize", "not prime"},
		{balancer(`{"type":"Maglev","maglev":{"tableSize":25}}`), lb + "maglev.tableSize", "not prime"},
		{balancer(`{"type":"Maglev","maglev":{"hashPolicies":[{"type":"Cookie"}]}}`), lb + "maglev.hashPolicies[0].cookie",
			"is required for"},
		{hashing(`{"type":"Header"}`), lb + "ringHash.hashPolicies[0].header", "is required for"},
		{hashing(`{"type":"Connection"}`), lb + "ringHash.hashPolicies[0].connection", "is required for"},
		{hashing(`{"type":"SourceIP"}`), lb + "ringHash.hashPolicies[0].connection", "is required for"},
		{hashing(`{"type":"QueryParameter"}`), lb + "ringHash.hashPolicies[0].queryParameter", "is required for"},
		{hashing(`{"type":"FilterState"}`), lb + "ringHash.hashPolicies[0].filterState", "is required for"},
		{hashing(`{"type":"Path"}`), lb + "ringHash.hashPolicies[0].type", `"Path" is not allowed`},
		{hashing(`{"type":"Header","header":{}}`), lb + "ringHash.hashPolicies[0].header.name", "missing"},
		{hashing(`{"type":"Header","header":{"name":"a b"}}`), lb + "ringHash.hashPolicies[0].header.name",
			"not the name of a header"},
		{hashing(`{"type":"Cookie","cookie":{"name":"a;b"}}`), lb + "ringHash.hashPolicies[0].cookie.name",
			"not a valid cookie name"},
		{hashing(`{"type":"Cookie","cookie":{"name":"a","path":"shop"}}`), lb + "ringHash.hashPolicies[0].cookie.path",
			"begin with /"},
		{hashing(`{"type":"Cookie","cookie":{"name":"a","path":"/;Domain=x"}}`), lb + "ringHash.hashPolicies[0].cookie.path",
			"semicolon"},
		{hashing(`{"type":"Cookie","cookie":{"name":"a","ttl":"-1s"}}`), lb + "ringHash.hashPolicies[0].cookie.ttl",
			"negative"},
		{hashing(`{"type":"QueryParameter","queryParameter":{}}`),
			lb + "ringHash.hashPolicies[0].queryParameter.name", "missing"},
		{hashing(`{"type":"FilterState","filterState":{"key":""}}`),
			lb + "ringHash.hashPolicies[0].filterState.key", "missing"},
		{tags(`{"weight":1}`), local + "[0].key", "missing"},
		{tags(`{"key":"a"},{"key":"a"}`), local + "[1].key", "given twice"},
		{tags(`{"key":"a","weight":0}`), local + "[0].weight", "at least 1"},
		{tags(`{"key":"a","weight":5},{"key":"b"}`), local, "1 of 2 tags have a weight"},
		{tags(`{"key":"a","weight":4294967295},{"key":"b","weight":1}`), local, "at most 4294967294"},
		{tags(`{"key":"1"},{"key":"2"},{"key":"3"},{"key":"4"},{"key":"5"},{"key":"6"},{"key":"7"},{"key":"8"},{"key":"9"},{"key":"10"}`), local, "at most 9"},
		{failover(`{"from":{"zones":[]},"to":{"type":"Any"}}`), cross + "failover[0].from.zones", "name at least one zone"},
		{failover(`{"from":{"zones":["a",""]},"to":{"type":"Any"}}`), cross + "failover[0].from.zones[1]", "empty"},
		{failover(`{"to":{}}`), cross + "failover[0].to.type", "None, Only, Any, AnyExcept"},
		{failover(`{"to":{"type":"Any","zones":["a"]}}`), cross + "failover[0].to.zones", "Any does not allow zones"},
		{failover(`{"to":{"type":"None","zones":["a"]}}`), cross + "failover[0].to.zones", "None does not allow zones"},
		{failover(`{"to":{"type":"Only"}}`), cross + "failover[0].to.zones", "name at least one zone"},
		{failover(`{"to":{"type":"AnyExcept","zones":[]}}`), cross + "failover[0].to.zones", "name at least one zone"},
		{failover(strings.Repeat(`{"to":{"type":"Any"}},`, 127) + `{"to":{"type":"Any"}}`), cross + "failover",
			"at most 127"},
		{`{"localityAwareness":{"crossZone":{"failoverThreshold":{}}}}`, cross + "failoverThreshold.percentage", "missing"},
		{`{"localityAwareness":{"crossZone":{"failoverThreshold":{"percentage":0}}}}`,
			cross + "failoverThreshold.percentage", "above 0"},
		{`{"localityAwareness":{"crossZone":{"failoverThreshold":{"percentage":"100.1"}}}}`,
			cross + "failoverThreshold.percentage", "up to 100"},
		{`{"hashPolicies":[{"type":"Header"}]}`, "hashPolicies[0].header", "is required for"},
		{`{"hashPolicies":[],"loadBalancer":{"type":"RingHash","ringHash":{"hashPolicies":[]}}}`,
			lb + "ringHash.hashPolicies", "cannot be combined"},
		{`{"hashPolicies":[],"loadBalancer":{"type":"RingHash","maglev":{"hashPolicies":[]}}}`,
			lb + "maglev.hashPolicies", "cannot be combined"},
	} {
		_, faults := decode(`{"kind":"Mesh"}`, toBackend, c.conf)
		if len(faults) != 1 || faults[0].Field != "spec.to[0].default."+c.field ||
			!strings.Contains(faults[0].Reason, c.reason) {
			t.Errorf("%s: want a fault at %s with %q, got %v", c.conf, c.field, c.reason, faults)
		}
	}
}

func TestRefusedTargets(t *testing.T) {
	const mesh, cross = `{"kind":"Mesh"}`, `{"localityAwareness":{"crossZone":{}}}`
	for _, c := range []struct{ top, to, conf, field, reason string }{
		{`{"kind":"MeshGatewayRoute","name":"r"}`, mesh, `{}`, "targetRef.kind", "not allowed"},
		{mesh, `{"kind":"MeshServiceSubset","name":"b","tags":{"version":"v1"}}`,
			`{}`, "to[0].targetRef.kind", "not allowed"},
		{`{"kind":"MeshGateway","name":"g"}`, toBackend, `{"loadBalancer":{"type":"Random"}}`,
			"to[0].targetRef.kind", "use kind Mesh"},
		{`{"kind":"MeshSubset","tags":{"a":"b"}}`, `{"kind":"MeshExternalService","name":"x"}`,
			`{}`, "to[0].targetRef.kind", "targetRef of kind Mesh"},
		{mesh, `{"kind":"MeshService","name":"b","sectionName":"http"}`, cross, "to[0].default.localityAwareness.crossZone",
			"MeshMultiZoneService"},
		{mesh, toRoute, `{"hashPolicies":[],"loadBalancer":{"type":"RingHash"}}`, "to[0].default.loadBalancer", "share a cluster"},
		{mesh, toRoute, `{"hashPolicies":[],"localityAwareness":{"disabled":true}}`, "to[0].default.localityAwareness",
			"share a cluster"},
		{mesh, toRoute, `{}`, "to[0].default.hashPolicies", "missing"},
		{`{"kind":"MeshGateway","name":"g"}`, toRoute, `{"hashPolicies":[]}`, "to[0].targetRef.kind", "not allowed"},
		{mesh, `{"kind":"MeshService","labels":{"a":"b"}}`, cross, "to[0].default.localityAwareness.crossZone",
			"MeshMultiZoneService"},
	} {
		_, faults := decode(c.top, c.to, c.conf)
		if len(faults) != 1 || faults[0].Field != "spec."+c.field || !strings.Contains(faults[0].Reason, c.reason) {
			t.Errorf("%s %s: want a fault at %s with %q, got %v", c.top, c.to, c.field, c.reason, faults)
		}
	}
	for _, c := range []struct{ top, to, conf string }{
		{`{"kind":"Dataplane","labels":{"app":"web"}}`, mesh, `{}`},
		{`{"kind":"MeshGateway","name":"g","tags":{"port":"80"}}`, mesh, `{"loadBalancer":{"type":"Random"}}`},
		{mesh, toRoute, `{"hashPolicies":[{"type":"SourceIP","connection":{"sourceIP":true}}]}`},
		{mesh, `{"kind":"MeshExternalService","name":"x"}`, `{}`},
		{mesh, `{"kind":"MeshMultiZoneService","name":"x","sectionName":"http"}`, cross},
		{mesh, toBackend, cross},
	} {
		if _, faults := decode(c.top, c.to, c.conf); len(faults) > 0 {
			t.Errorf("%s %s: %v", c.top, c.to, faults)
		}
	}
}
