package main

import (
	"encoding/json"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// exportedPaths are the paths of the API in the modules of the page, as they are written. Each
// has the answers that an export needs for it. KIND, PLURAL, MESH, and NAME stand for those of a
// resource that fits. Paths without an answer depend on an agent: the page says so.
var exportedPaths = map[string][]string{
	"/v1/status":                       {"v1/status"},
	"/v1/pool":                         {"v1/pool"},
	"/v1/accesslogs":                   {"v1/accesslogs"},
	"/v1/dataplanes":                   {"v1/dataplanes"},
	"/v1/services":                     {"v1/services"},
	"/v1/edges":                        {"v1/edges"},
	"/v1/members":                      {"v1/members"},
	"/v1/conflicts":                    {"v1/conflicts"},
	"/v1/dns":                          {"v1/dns"},
	"/v1/history":                      {"v1/history"},
	"/v1/kinds":                        {"v1/kinds"},
	"/v1/names":                        {"v1/names?kind=KIND", "v1/names?kind=KIND&mesh=MESH"},
	"/${kind.plural}":                  {"PLURAL"},
	"/meshes/${r.mesh}/${kind.plural}": {"meshes/MESH/PLURAL"},
	"/${kind.plural}/${r.name}":        {"PLURAL/NAME"},
	"/meshes/${r.mesh}/${kind.plural}/${r.name}": {"meshes/MESH/PLURAL/NAME"},
	"/${plural}/${name}":                         {"PLURAL/NAME"},
	"/meshes/${mesh}/dataplanes/${name}":         {"meshes/MESH/dataplanes/NAME"},
	"/dataplanes": {
		"meshes/MESH/PLURAL/NAME/dataplanes",
		"PLURAL/NAME/dataplanes",
	},
	"/_config": {
		"meshes/MESH/dataplanes/NAME/_config",
		"meshes/MESH/dataplanes/NAME/_config?shadow=true",
	},
	"/meshes/${part.proxy.mesh}/dataplanes/${part.proxy.name}/_rules": {
		"meshes/MESH/dataplanes/NAME/_rules?include=fields",
	},
	"/v1/applied/${k.plural}":                                      {"v1/applied/PLURAL"},
	"/v1/applied/${kind.plural}":                                   {"v1/applied/PLURAL"},
	"/v1/history/${kind.plural}/${r.mesh}/${r.name}":               {"v1/history/PLURAL/MESH/NAME"},
	"/v1/history/${kind.plural}/${r.name}":                         {"v1/history/PLURAL/NAME"},
	"/v1/schemas/${kind}":                                          {"v1/schemas/KIND"},
	"/v1/${plural}/${name}":                                        {"v1/PLURAL/NAME/status"},
	"/v1/dataplanes/${mesh}/${name}":                               {"v1/dataplanes/MESH/NAME/status"},
	"/v1/dataplanes/${mesh}/${from}/backends":                      {"v1/dataplanes/MESH/NAME/backends"},
	"/v1/dataplanes/${part.proxy.mesh}/${part.proxy.name}":         {"v1/dataplanes/MESH/NAME/policies"},
	"/v1/dataplanes/${part.proxy.mesh}/${part.proxy.name}/sources": {"v1/dataplanes/MESH/NAME/sources"},

	"/meshes/${mesh}/dataplanes/_overview": nil, // of questions
	"/v1/apply":                            nil,
	"/v1/conflicts/restore":                nil,
	"/v1/diff":                             nil,
	"/v1/events":                           nil,
	"/v1/explain":                          nil,
	"/v1/logs":                             nil,
	"/v1/rollback":                         nil,
	"/v1/wait":                             nil,
}

// pathOfAPI matches the begin of a path of the API in a module of the page.
var pathOfAPI = regexp.MustCompile("['`](/(?:v1/|_|meshes/|dataplanes|\\$\\{)[^'`?\\s]*)['`?]")

// TestExportAnswers compares the paths that the modules of the page name with the answers of an
// export. Two exports of the same files have the same bytes.
func TestExportAnswers(t *testing.T) {
	export := func() map[string]string {
		dir := filepath.Join(t.TempDir(), "out")
		output(t, "", 0, "ui", "-f", "../../examples/quickstart/resources", "--export", dir)
		files := map[string]string{}
		agenttest.Do(t, fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			text, err := fs.ReadFile(os.DirFS(dir), name)
			files[name] = string(text)
			return err
		}))
		return files
	}
	first, second := export(), export()
	for name := range first {
		if first[name] != second[name] {
			t.Errorf("%s differs in the second export", name)
		}
	}
	if len(first) != len(second) {
		t.Errorf("%d and %d files", len(first), len(second))
	}
	var index map[string]string
	agenttest.Do(t, json.Unmarshal([]byte(first["api/index.json"]), &index))
	answer := func(key string, into any) {
		t.Helper()
		text, ok := first["api/"+index[key]]
		if !ok || index[key] == "" {
			t.Errorf("the export has no answer for %q", key)
			return
		}
		if err := json.Unmarshal([]byte(text), into); err != nil {
			t.Errorf("the answer for %q: %v", key, err)
		}
	}
	var kinds struct {
		Items []struct {
			Kind, Plural string
			Global       bool
		}
	}
	answer("v1/kinds", &kinds)
	used := pathsOfPage(t)
	for path, keys := range exportedPaths {
		if !slices.Contains(used, path) {
			t.Errorf("no module of the page names %s; remove it from the list and from the export", path)
		}
		for _, key := range keys {
			found := 0
			for _, k := range kinds.Items {
				var list struct {
					Items []struct{ Resource struct{ Mesh, Name string } }
				}
				answer(k.Plural, &list)
				for _, x := range list.Items {
					r := x.Resource
					if k.Global != (r.Mesh == "") || strings.Contains(key, "MESH") == k.Global {
						continue
					}
					proxy := k.Kind == "Dataplane" || k.Kind == "ZoneEgress" || k.Kind == "ZoneIngress"
					if k.Kind != "Dataplane" && strings.Contains(key, "/dataplanes/MESH") ||
						k.Kind != "Dataplane" && strings.Contains(key, "MESH/dataplanes/") ||
						proxy && strings.HasSuffix(key, "/dataplanes") || !proxy && strings.HasSuffix(key, "/status") {
						continue
					}
					answer(strings.NewReplacer("KIND", k.Kind, "PLURAL", k.Plural, "MESH", r.Mesh, "NAME", r.Name).
						Replace(key), new(any))
					found++
				}
			}
			if !strings.ContainsAny(key, "KPMN") {
				answer(key, new(any))
			} else if found == 0 && key != "v1/PLURAL/NAME/status" { // the quickstart has no zone proxies
				t.Errorf("no resource of the quickstart fits %s", key)
			}
		}
	}
	for _, path := range used {
		if _, ok := exportedPaths[path]; !ok {
			t.Errorf("the page names %s: add its answer to the export and to this list", path)
		}
	}
}

// pathsOfPage returns the paths of the API in the modules of the page.
func pathsOfPage(t *testing.T) []string {
	t.Helper()
	found := map[string]bool{}
	agenttest.Do(t, fs.WalkDir(os.DirFS("../../agent/serve/web/page"), ".", func(name string, _ fs.DirEntry,
		err error) error {
		if err != nil || filepath.Ext(name) != ".js" || name == "core/api.js" {
			return err
		}
		text, err := os.ReadFile(filepath.Join("../../agent/serve/web/page", name))
		for _, m := range pathOfAPI.FindAllStringSubmatch(string(text), -1) {
			found[m[1]] = true
		}
		return err
	}))
	return slices.Sorted(maps.Keys(found))
}

// TestExportFaults exports a file with a fault: the page shows it, and the exit code is 65.
func TestExportFaults(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/in/mesh.yaml", "type: Mesh\nname: default\n---\ntype: Dataplane\nmesh: default\nname: web\nnope: 1\n")
	out, errs := output(t, "", 65, "ui", "-f", dir+"/in", "--export", dir+"/out", "-o", "json")
	agenttest.Contains(t, errs, "1 file has faults", "nearside validate -f")
	agenttest.Contains(t, out, `"faults": 1`)
	index, err := os.ReadFile(dir + "/out/api/index.json")
	agenttest.Do(t, err)
	var names map[string]string
	agenttest.Do(t, json.Unmarshal(index, &names))
	status, err := os.ReadFile(dir + "/out/api/" + names["v1/status"])
	agenttest.Do(t, err)
	agenttest.Contains(t, string(status), `"nope"`)
}
