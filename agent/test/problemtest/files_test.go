package problemtest

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
	"github.com/nearside-mesh/nearside/agent/test/secrettest"
)

const bad, warn = api.SeverityError, api.SeverityWarning

// withKey returns a Mesh with a CA whose key is in the document.
func withKey(w *world) string {
	cert, key := secrettest.Authority(w.t, "inline")
	quoted := func(b []byte) string { return strings.ReplaceAll(string(b), "\n", `\n`) }
	return `{"type": "Mesh", "name": "default", "mtls": {"enabledBackend": "ca", "backends": [{"name": "ca", "type": ` +
		`"provided", "conf": {"cert": {"inlineString": "` + quoted(cert) + `"}, "key": {"inlineString": "` + quoted(key) +
		`"}}}]}}`
}

// fileFaults are faults of resource files.
var fileFaults = []fault{
	{name: "broken YAML", file: "type: [Mesh", check: api.ClassFileFault, severity: bad, cause: "a.yaml",
		names: "a.yaml", alerts: "NearsideResourceFiles"},
	{name: "unknown type", file: "{type: Mash, name: default}", check: api.ClassFileFault, severity: bad, cause: "Mash",
		names: "Mash"},
	{name: "unknown field", file: "{type: Mesh, name: default, mtsl: {}}", check: api.ClassFileFault, severity: bad,
		cause: "mtsl", names: "mtsl"},
	{name: "wrong value", file: "{type: MeshTimeout, mesh: default, name: t, spec: {targetRef: {kind: Mesh}, to: " +
		"[{targetRef: {kind: Mesh}, default: {connectionTimeout: soon}}]}}", check: api.ClassFileFault, severity: bad,
		cause: "connectionTimeout", names: "soon"},
	{name: "missing name", file: "{type: Mesh}", check: api.ClassFileFault, severity: bad, cause: "the name is missing",
		names: "the name is missing"},
	{name: "mesh of a policy is missing",
		file: "{type: MeshTimeout, name: t, mesh: gone, spec: {targetRef: {kind: Mesh}, " +
			"to: [{targetRef: {kind: Mesh}, default: {connectionTimeout: 1s}}]}}", check: api.ClassResource, severity: warn,
		cause: "gone"},
	{name: "one resource twice", file: "{type: Mesh, name: default, routing: {}}\n---\n{type: Mesh, name: default}",
		check: api.ClassFileFault, severity: bad, cause: "default", names: "default"},
	{name: "two files with one resource", file: "{type: Mesh, name: default}", before: func(w *world) {
		w.file("b.yaml", "{type: Mesh, name: default}")
	}, check: api.ClassFileConflict, severity: bad, cause: "b.yaml"},
	{name: "resource of the API in a file", after: func(w *world) {
		agenttest.ByAPI(w.t, w.Store(), "{type: Mesh, name: default}")
		w.file("a.yaml", "{type: Mesh, name: default}")
	}, check: api.ClassFileConflict, severity: bad, cause: "managed by api", alerts: "NearsideResourceFiles"},
	{name: "no resource directory", before: func(w *world) {
		agenttest.Do(w.t, os.Remove(filepath.Join(w.dir, "resources")))
	}, check: api.ClassFileFault, severity: bad, cause: "no such file or directory", names: "resources"},
	{name: "removed directory", file: "{type: Mesh, name: default}", after: func(w *world) {
		agenttest.Do(w.t, os.RemoveAll(filepath.Join(w.dir, "resources")))
	}, check: api.ClassFileFault, severity: bad, cause: "cannot be read"},
	{name: "a directory is a file", before: func(w *world) {
		agenttest.Do(w.t, os.Remove(filepath.Join(w.dir, "resources")))
		agenttest.Write(w.t, filepath.Join(w.dir, "resources"), "")
	}, check: api.ClassFileFault, severity: bad, cause: "not a directory"},
	{name: "exposed key", before: func(w *world) {
		agenttest.Write(w.t, filepath.Join(w.dir, "resources/a.yaml"), withKey(w))
		agenttest.Do(w.t, os.Chmod(filepath.Join(w.dir, "resources/a.yaml"), 0o644))
	}, check: api.ClassFileExposed, severity: warn, cause: "a.yaml", names: "-rw-r--r--"},
	{name: "file turns bad", file: "{type: Mesh, name: default}", after: func(w *world) {
		w.file("a.yaml", "{type: Mesh, name: default, mtsl: {}}")
	}, check: api.ClassFileFault, severity: bad, cause: "mtsl", names: "mtsl"},
}
