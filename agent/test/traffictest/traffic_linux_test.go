package traffictest_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// scene is a state of the meshes, and what comes of connections and requests in it.
type scene struct {
	what    string
	docs    string // beside what is there at the start, or in place of it
	without []resource.Key
	rows    []row
}

// TestTraffic sends real connections and requests through real Envoys with the config of a running
// agent, and has each explained. What the policies promise is what happens, and what happens is
// what is explained.
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

// scenes are all states, with the file to which proxies log.
func scenes(log string) []scene {
	return slices.Concat(services(), webSockets(), permissions(), bySPIFFE(log), permissive(), outsides(), routes(),
		shapes(), observed(log), patches(), legacies(log), passthroughs(), pinned(), withoutTLS())
}

// key names a resource of the mesh default.
func key(kind, name string) resource.Key {
	return resource.Key{Kind: kind, Mesh: "default", Name: name}
}

// policy is a document with a policy of the mesh default.
func policy(kind, name, spec string) string {
	return fmt.Sprintf("---\n{type: %s, mesh: default, name: %s, spec: %s}\n", kind, name, spec)
}

// to is the spec of a policy for what the proxy web sends to a service.
func to(service, conf string) string {
	return "{targetRef: {kind: Dataplane, name: web}, to: [{targetRef: " + target(service) + ", default: " + conf + "}]}"
}

// from is the spec of a policy for what a service gets of others.
func from(service, client, conf string) string {
	return "{targetRef: " + target(service) + ", from: [{targetRef: " + target(client) + ", default: " + conf + "}]}"
}

// target is a targetRef: a service by its name, and everything with none.
func target(service string) string {
	if service == "" {
		return "{kind: Mesh}"
	}
	return "{kind: MeshService, name: " + service + "}"
}

// permission lets one service in to another, or not.
func permission(name, service, client, action string) string {
	return policy("MeshTrafficPermission", name, from(service, client, "{action: "+action+"}"))
}

// theMesh is the mesh default with other fields.
func theMesh(fields string) string {
	return "---\n{type: Mesh, name: default, " + fields + "}\n"
}

const (
	strict    = "mtls: {enabledBackend: ca, backends: [{name: ca, type: builtin}]}"
	lenient   = "mtls: {enabledBackend: ca, backends: [{name: ca, type: builtin, mode: PERMISSIVE}]}"
	viaEgress = "routing: {zoneEgress: true}"

	backends = "backend-1/8080|backend-2/8080"
)

// header holds a header that the server got to a value.
func header(name, value string) func(*answered) bool {
	return func(a *answered) bool { return a.seen.Headers[name] == value }
}

// rewritten holds the path that the server got to another.
func rewritten(path string) func(*answered) bool {
	return func(a *answered) bool { return a.seen.Path == path }
}

// sized holds the bytes that the server got, or the client, to a number.
func sized(n int64) func(*answered) bool {
	return func(a *answered) bool { return max(a.seen.Bytes, a.size) >= n }
}

// location holds where a redirect leads to an address.
func location(url string) func(*answered) bool {
	return func(a *answered) bool { return a.header.Get("Location") == url }
}

// changed is a member of the world with another networking section.
func changed(id, old, now string) string {
	for _, m := range members() {
		if m.id == id {
			return "---\n" + strings.Replace(m.text, old, now, 1) + "\n"
		}
	}
	return ""
}
