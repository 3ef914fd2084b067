package kindtest

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Services is a mesh with the proxy web and two services that it reaches.
const Services = `
{type: Mesh, name: default}
---
{type: Dataplane, mesh: default, name: svc-1, networking: {address: 10.1.0.1, inbound: [{port: 8080, tags: {kuma.io/service: svc-1, kuma.io/protocol: http, version: v1}}]}}
---
{type: Dataplane, mesh: default, name: svc-2, networking: {address: 10.1.0.2, inbound: [{port: 8080, tags: {kuma.io/service: svc-2, kuma.io/protocol: tcp}}]}}
---
{type: Dataplane, mesh: default, name: web, networking: {address: 10.1.0.3, inbound: [{port: 8080, tags: {kuma.io/service: web, kuma.io/protocol: http}}], outbound: [{port: 10001, tags: {kuma.io/service: svc-1}}, {port: 10002, tags: {kuma.io/service: svc-2}}, {port: 10003, tags: {kuma.io/service: svc-3}}]}}
`

// Decode decodes valid documents.
func Decode(tb testing.TB, docs string) []*resource.Resource {
	tb.Helper()
	rs, faults := kinds.Registry().Decode("", []byte(docs))
	if len(faults) > 0 {
		tb.Fatal(faults)
	}
	return rs
}

// Breaking returns a policy whose access log for the inbound of web contains a command that Envoy
// does not know.
func Breaking(name, target string) string {
	return fmt.Sprintf(`
type: MeshProxyPatch
mesh: default
name: %s
spec:
  targetRef: %s
  default:
    appendModifications:
    - cluster: {operation: Add, value: "{name: extra-%s, connectTimeout: 5s, type: STATIC}"}
    - listener:
        operation: Patch
        match: {name: "inbound:10.1.0.3:8080"}
        value: |
          accessLog:
          - name: envoy.access_loggers.file
            typedConfig:
              "@type": type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog
              path: /tmp/x.log
              logFormat: {textFormatSource: {inlineString: "%%LATE%%"}}
`, name, target, name)
}

// SameJSON compares two documents as JSON, ignoring the order of keys.
func SameJSON(tb testing.TB, a, b string) bool {
	tb.Helper()
	return canonical(tb, a) == canonical(tb, b)
}

func canonical(tb testing.TB, s string) string {
	tb.Helper()
	var v any
	if err := json.Unmarshal([]byte(s), &v); err != nil {
		tb.Fatal(err)
	}
	out, err := json.Marshal(v)
	if err != nil {
		tb.Fatal(err)
	}
	return string(out)
}
