package resource_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// TestProbesOf checks the probes of Dataplanes: defaults, bounds, addresses, and annotations.
func TestProbesOf(t *testing.T) {
	dataplane := func(more, inbounds string) string {
		return "{type: Dataplane, mesh: m, name: d, networking: {address: 10.0.0.1, " + more + "inbound: [" + inbounds + "]}}"
	}
	annotated := func(value string) string {
		return "{apiVersion: kuma.io/v1alpha1, kind: Dataplane, mesh: m, metadata: {name: d, namespace: n, annotations: " +
			"{nearside.io/http-probes: '" + value + "'}}, spec: {networking: {address: 10.0.0.1, inbound: [" +
			"{port: 80, tags: {kuma.io/service: s}, serviceProbe: {interval: 5s, http: {path: /own}}}, " +
			"{port: 81, tags: {kuma.io/service: s}}]}}}"
	}
	in := func(fields string) string { return "{port: 80, tags: {kuma.io/service: s}, " + fields + "}" }
	for text, want := range map[string]string{
		dataplane("", in("name: x")):          "",
		dataplane("", in("serviceProbe: {}")): "80 10.0.0.1:80 false \"\" 1s 2s 1 1",
		dataplane("transparentProxying: {redirectPortInbound: 15006, redirectPortOutbound: 15001}, ",
			in("servicePort: 90, serviceAddress: 127.0.0.1, serviceProbe: {interval: 1ms, timeout: 1h, unhealthyThreshold: 3, "+
				"healthyThreshold: 2, tcp: {}}")): "80 127.0.0.1:90 true \"\" 100ms 1m0s 2 3",
		dataplane("", in("serviceProbe: {http: {path: \"/a?b=c\"}}")): "80 10.0.0.1:80 false \"/a?b=c\" 1s 2s 1 1",
		dataplane("", in("state: Ignored, serviceProbe: {}")):         "",
		dataplane("", in("serviceProbe: {http: {path: a}}")):          `serviceProbe.http.path: "a" is not a path`,
		dataplane("", in(`serviceProbe: {http: {path: "/a\r\nX:"}}`)): "only printable ASCII characters",
		dataplane("", in("serviceProbe: {http: {path: /"+strings.Repeat("a", 1024)+"}}")): "the path has 1025 bytes, " +
			"at most 1024 are allowed",
		annotated("81/ready"):  "80 10.0.0.1:80 false \"/own\" 5s 2s 1 1, 81 10.0.0.1:81 false \"/ready\" 1s 2s 1 1",
		annotated("80/x, 81/"): "80 10.0.0.1:80 false \"/own\" 5s 2s 1 1, 81 10.0.0.1:81 false \"/\" 1s 2s 1 1",
		annotated("81"):        `annotations["nearside.io/http-probes"]: "81" is not PORT/PATH`,
		annotated("0/x"):       `"0/x" is not PORT/PATH`,
		annotated("81/a b"):    "only printable ASCII characters",
	} {
		list, faults := kinds.Registry().Decode("x", []byte(text))
		got := ""
		if err := faults.Err(); err != nil {
			got = err.Error()
		} else {
			var out []string
			for _, p := range resource.ProbesOf(list[0]) {
				out = append(out, fmt.Sprintf("%d %s %t %q %s %s %d %d", p.Port, p.Workload, p.Redirected, p.Path, p.Interval,
					p.Timeout, p.Healthy, p.Unhealthy))
			}
			got = strings.Join(out, ", ")
		}
		if got != want && (want == "" || strings.HasPrefix(want, "80 ") || !strings.Contains(got, want)) {
			t.Errorf("%s:\n%s, want\n%s", text, got, want)
		}
	}
}
