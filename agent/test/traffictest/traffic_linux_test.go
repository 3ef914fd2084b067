package traffictest_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// scene is a state of the meshes with the expected results of connections and requests.
type scene struct {
	what    string
	docs    string // added to the initial documents, or replacing them
	without []resource.Key
	rows    []row
}

// TestTraffic sends real connections and requests through real Envoys configured by a running
// agent, and requests an explanation for each. The result must match both the policies and the
// explanation.
func TestTraffic(t *testing.T) {
	w := newWorld(t)
	for _, s := range scenes(w.records.path) {
		t.Run(s.what, func(t *testing.T) {
			w.apply(t, s.docs, s.without...)
			for i := range s.rows {
				t.Run(s.rows[i].what, func(t *testing.T) { s.rows[i].run(t, w) })
			}
		})
	}
}

// scenes returns all scenes. log is the file that the proxies log to.
func scenes(log string) []scene {
	return slices.Concat(services(), headerLimits(), webSockets(), permissions(), bySPIFFE(), byRules(log), permissive(),
		outsides(), routes(), shapes(), observed(log), patches(), legacies(log), passthroughs(), pinned(), withoutTLS())
}

// key returns the key of a resource in mesh default.
func key(kind, name string) resource.Key {
	return resource.Key{Kind: kind, Mesh: "default", Name: name}
}

// policy returns a policy document for mesh default.
func policy(kind, name, spec string) string {
	return fmt.Sprintf("---\n{type: %s, mesh: default, name: %s, spec: %s}\n", kind, name, spec)
}

// to returns the spec of a policy for the traffic from proxy web to a service.
func to(service, conf string) string {
	return "{targetRef: {kind: Dataplane, name: web}, to: [{targetRef: " + target(service) + ", default: " + conf + "}]}"
}

// from returns the spec of a policy for a service's inbound traffic.
func from(service, client, conf string) string {
	return "{targetRef: " + target(service) + ", from: [{targetRef: " + target(client) + ", default: " + conf + "}]}"
}

// target returns a targetRef for a service, or for the mesh if service is empty.
func target(service string) string {
	if service == "" {
		return "{kind: Mesh}"
	}
	return "{kind: MeshService, name: " + service + "}"
}

// permission allows or denies one service access to another one.
func permission(name, service, client, action string) string {
	return policy("MeshTrafficPermission", name, from(service, client, "{action: "+action+"}"))
}

// theMesh returns the mesh default with other fields.
func theMesh(fields string) string {
	return "---\n{type: Mesh, name: default, " + fields + "}\n"
}

const (
	strict    = "mtls: {enabledBackend: ca, backends: [{name: ca, type: builtin}]}"
	lenient   = "mtls: {enabledBackend: ca, backends: [{name: ca, type: builtin, mode: PERMISSIVE}]}"
	viaEgress = "routing: {zoneEgress: true}"

	backends = "backend-1/8080|backend-2/8080"
)

// header checks a header that the server received.
func header(name, value string) func(*answered) bool {
	return func(a *answered) bool { return a.seen.Headers[name] == value }
}

// rewritten checks the path that the server received.
func rewritten(path string) func(*answered) bool {
	return func(a *answered) bool { return a.seen.Path == path }
}

// sized checks the number of bytes that the server or the client received.
func sized(n int64) func(*answered) bool {
	return func(a *answered) bool { return max(a.seen.Bytes, a.size) >= n }
}

// location checks the target of a redirect.
func location(url string) func(*answered) bool {
	return func(a *answered) bool { return a.header.Get("Location") == url }
}

// changed returns a member of the world with a modified networking section.
func changed(id, old, now string) string {
	for _, m := range members() {
		if m.id == id {
			return "---\n" + strings.Replace(m.text, old, now, 1) + "\n"
		}
	}
	return ""
}
