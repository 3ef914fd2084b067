package proxypatch

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/nearside-mesh/nearside/agent/base/jsonpatch"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// parsedOf parses a value of a message type like validation.
func parsedOf(t *testing.T, name, text string) parsed {
	t.Helper()
	mt, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName(name))
	if err != nil {
		t.Fatal(err)
	}
	var faults []resource.Fault
	p, _, ok := parse(resource.NewValidator("value", &faults), text, mt.New().Interface(), true)
	if !ok {
		t.Fatalf("%s: %v", text, faults)
	}
	return p
}

const (
	clusterName  = "envoy.config.cluster.v3.Cluster"
	listenerName = "envoy.config.listener.v3.Listener"
	tlsConfig    = `"@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext`
	rawConfig    = `"@type": type.googleapis.com/envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer`
)

// TestMerge contains cases that differ from protobuf merging, and some that do not. A wanted
// message that begins with an exclamation mark is part of the error.
func TestMerge(t *testing.T) {
	for name, c := range map[string]struct{ message, dst, src, want string }{
		"fields over fields": {clusterName, `{name: a, altStatName: b}`, `{altStatName: c, respectDnsTtl: true}`,
			`{name: a, altStatName: c, respectDnsTtl: true}`},
		"messages are merged": {clusterName, `{outlierDetection: {interval: 1s, consecutive5xx: 5}}`,
			`{outlierDetection: {consecutive5xx: 6}}`, `{outlierDetection: {interval: 1s, consecutive5xx: 6}}`},
		"durations are one value": {clusterName, `{connectTimeout: 1.5s}`, `{connectTimeout: 2s}`,
			`{connectTimeout: 2s}`},
		"a duration of zero": {clusterName, `{outlierDetection: {interval: 5s, maxEjectionTimeJitter: 7s}}`,
			`{outlierDetection: {maxEjectionTimeJitter: 0s}}`, `{outlierDetection: {interval: 5s, maxEjectionTimeJitter: 0s}}`},
		"a wrapped false": {listenerName, `{enableReusePort: true, freebind: true}`,
			`{enableReusePort: false}`, `{enableReusePort: false, freebind: true}`},
		"a wrapped zero": {clusterName, `{outlierDetection: {enforcingSuccessRate: 100}}`,
			`{outlierDetection: {enforcingSuccessRate: 0}}`, `{outlierDetection: {enforcingSuccessRate: 0}}`},
		"an explicit false": {clusterName, `{respectDnsTtl: true, useTcpForDnsLookups: true}`,
			`{respectDnsTtl: false}`, `{useTcpForDnsLookups: true}`},
		"an explicit default deep": {clusterName,
			`{commonLbConfig: {ignoreNewHostsUntilFirstHc: true, closeConnectionsOnHostSetChange: true}}`,
			`{common_lb_config: {ignore_new_hosts_until_first_hc: false}}`,
			`{commonLbConfig: {closeConnectionsOnHostSetChange: true}}`},
		"an explicit default of an enum": {clusterName, `{lbPolicy: RING_HASH}`, `{lbPolicy: ROUND_ROBIN}`, `{}`},
		"null changes nothing":           {clusterName, `{lbPolicy: RING_HASH}`, `{lbPolicy: null}`, `{lbPolicy: RING_HASH}`},
		"items are appended": {clusterName,
			`{healthChecks: [{timeout: 1s, interval: 1s, healthyThreshold: 1, unhealthyThreshold: 1, tcpHealthCheck: {}}]}`,
			`{healthChecks: [{timeout: 2s, interval: 1s, healthyThreshold: 1, unhealthyThreshold: 1, tcpHealthCheck: {}}]}`,
			`{healthChecks: [{timeout: 1s, interval: 1s, healthyThreshold: 1, unhealthyThreshold: 1, tcpHealthCheck: {}}, {timeout: 2s, interval: 1s, healthyThreshold: 1, unhealthyThreshold: 1, tcpHealthCheck: {}}]}`},
		"a choice is replaced": {clusterName, `{type: EDS}`, `{clusterType: {name: x}}`,
			`{clusterType: {name: x}}`},
		"a choice with a default": {clusterName, `{clusterType: {name: x}}`, `{type: STATIC}`, `{type: STATIC}`},
		"entries are replaced": {clusterName, `{metadata: {filterMetadata: {a: {x: 1, y: 1}, b: {}}}}`,
			`{metadata: {filterMetadata: {a: {x: 2}, c: {}}}}`, `{metadata: {filterMetadata: {a: {x: 2}, b: {}, c: {}}}}`},
		"thresholds by priority": {clusterName,
			`{circuitBreakers: {thresholds: [{maxRequests: 1, maxRetries: 1}, {priority: HIGH, maxRequests: 2}]}}`,
			`{circuitBreakers: {thresholds: [{priority: HIGH, maxRetries: 3}, {priority: DEFAULT, maxRequests: 4}], perHostThresholds: [{maxConnections: 5}]}}`, `{circuitBreakers: {thresholds: [{maxRequests: 4, maxRetries: 1}, {priority: HIGH, maxRequests: 2, maxRetries: 3}], perHostThresholds: [{maxConnections: 5}]}}`},
		"packed messages are merged": {clusterName, `{transportSocket: {name: t, typedConfig: {` + tlsConfig +
			`, sni: a, maxSessionKeys: 5}}}`, `{transportSocket: {typedConfig: {` + tlsConfig + `, sni: b}}}`,
			`{transportSocket: {name: t, typedConfig: {` + tlsConfig + `, sni: b, maxSessionKeys: 5}}}`},
		"packed messages in lists": {clusterName,
			`{transportSocketMatches: [{name: a, transportSocket: {name: t, typedConfig: {` + tlsConfig + `, sni: a}}}]}`,
			`{transportSocketMatches: [{name: b, transportSocket: {name: t, typedConfig: {` + tlsConfig + `, sni: b}}}]}`,
			`{transportSocketMatches: [{name: a, transportSocket: {name: t, typedConfig: {` + tlsConfig +
				`, sni: a}}}, {name: b, transportSocket: {name: t, typedConfig: {` + tlsConfig + `, sni: b}}}]}`},
		"packed messages of two types": {clusterName, `{transportSocket: {name: t, typedConfig: {` + tlsConfig +
			`, sni: a}}}`, `{transportSocket: {typedConfig: {` + rawConfig + `}}}`,
			`{transportSocket: {name: t, typedConfig: {` + rawConfig + `}}}`},
		"packed messages in maps": {clusterName,
			`{typedExtensionProtocolOptions: {a: {` + tlsConfig + `, sni: a, maxSessionKeys: 5}}}`,
			`{typedExtensionProtocolOptions: {a: {` + tlsConfig + `, sni: b}, b: {` + rawConfig + `}}}`,
			`{typedExtensionProtocolOptions: {a: {` + tlsConfig + `, sni: b, maxSessionKeys: 5}, b: {` + rawConfig + `}}}`},
		"packed messages that break": {clusterName, `{transportSocket: {name: t, typedConfig: {` + tlsConfig +
			`, commonTlsContext: {tlsCertificateSdsSecretConfigs: [{name: x}]}}}}`, `{transportSocket: {typedConfig: {` +
			tlsConfig + `, commonTlsContext: {tlsParams: {tlsMinimumProtocolVersion: TLSv1_3}, customHandshaker: {}}}}}`,
			`!transportSocket: typedConfig: commonTlsContext.customHandshaker.name: value length must be at least 1`},
	} {
		t.Run(name, func(t *testing.T) {
			dst, src, want := parsedOf(t, c.message, c.dst).message, parsedOf(t, c.message, c.src), ""
			before := proto.Clone(src.message)
			err := merge(dst, src)
			if diff := cmp.Diff(before, src.message, protocmp.Transform()); diff != "" {
				t.Errorf("the value was modified: %s", diff)
			}
			if bad := strings.HasPrefix(c.want, "!"); bad {
				want = c.want[1:]
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want %q", err, want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(parsedOf(t, c.message, c.want).message, dst, protocmp.Transform()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestMergeSharesNothing checks that modifying the merged message does not modify the value.
func TestMergeSharesNothing(t *testing.T) {
	src := parsedOf(t, clusterName,
		`{name: a, loadAssignment: {clusterName: a, endpoints: [{lbEndpoints: [{}]}]}, metadata: {filterMetadata: {m: {x: 1}}}, circuitBreakers: {thresholds: [{maxRequests: 1}]}, dnsResolvers: [{pipe: {path: p}}]}`)
	before := proto.Clone(src.message)
	dst := parsedOf(t, clusterName, `{}`).message
	if err := merge(dst, src); err != nil {
		t.Fatal(err)
	}
	var scramble func(m protoreflect.Message)
	scramble = func(m protoreflect.Message) {
		m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
			switch {
			case fd.Kind() == protoreflect.StringKind && !fd.IsList() && !fd.IsMap():
				m.Set(fd, protoreflect.ValueOfString("changed"))
			case fd.IsList() && fd.Message() != nil:
				for i := range v.List().Len() {
					scramble(v.List().Get(i).Message())
				}
				v.List().AppendMutable()
			case fd.IsMap():
				v.Map().Clear(protoreflect.ValueOfString("m").MapKey())
			case fd.Message() != nil && !fd.IsList():
				scramble(v.Message())
			case fd.Kind() == protoreflect.Uint32Kind:
				m.Set(fd, protoreflect.ValueOfUint32(77))
			}
			return true
		})
	}
	scramble(dst.ProtoReflect())
	if diff := cmp.Diff(before, src.message, protocmp.Transform()); diff != "" {
		t.Errorf("the value was modified through the merged message: %s", diff)
	}
}

// FuzzPatchMessage checks that applying patches to a listener does not panic and that results
// satisfy Envoy's rules.
func FuzzPatchMessage(f *testing.F) {
	f.Add(`[{"op":"add","path":"/filterChains/0/filters/0/typedConfig/statPrefix","value":"y"}]`, `{"freebind": true}`)
	f.Add(`[{"op":"move","from":"/filterChains/0","path":"/defaultFilterChain"},{"op":"remove","path":"/address"}]`,
		`filterChains: [{filters: []}]`)
	f.Add(`[{"op":"copy","from":"","path":"/metadata/filterMetadata/x"},{"op":"replace","path":"/name","value":null}]`,
		`{"metadata": {"filterMetadata": {"x": {"y": [1, null]}}}}`)
	const listener = `{"name":"l","address":{"socketAddress":{"address":"1.2.3.4","portValue":1}},"filterChains":[{"filters":[{"name":"t","typedConfig":{` +
		`"@type":"type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy","statPrefix":"x","cluster":"c"}}]}]}`
	f.Fuzz(func(t *testing.T, ops, value string) {
		m := targets[Listeners].message.ProtoReflect().New().Interface()
		if err := protojson.Unmarshal([]byte(listener), m); err != nil {
			t.Fatal(err)
		}
		before := proto.Clone(m)
		var list jsonpatch.Patch
		if err := json.Unmarshal([]byte(ops), &list); err == nil {
			p := &patch{}
			for _, op := range list {
				p.add(op)
			}
			if out, err := p.apply(m); err == nil && broken(out) != nil {
				t.Errorf("%s: the message violates a rule: %v", ops, broken(out))
			}
		}
		if !proto.Equal(m, before) {
			t.Fatalf("%s modified the message", ops)
		}
		var faults []resource.Fault
		v := resource.NewValidator("value", &faults)
		p, _, ok := parse(v, value, targets[Listeners].message.ProtoReflect().New().Interface(), true)
		if ok == (len(faults) > 0) {
			t.Fatalf("%q: %v, %v", value, ok, faults)
		}
		if ok {
			_ = merge(m, p)
		}
	})
}
