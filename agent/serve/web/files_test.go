package web_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/serve/web"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// editing serves a page that may edit a file and a link in a directory, and returns the directory.
func editing(t *testing.T) (*page, string) {
	dir := t.TempDir()
	agenttest.Do(t, os.WriteFile(filepath.Join(dir, "a.yaml"), []byte("type: Mesh\n"), 0o640),
		os.WriteFile(filepath.Join(dir, "other"), []byte("x"), 0o600),
		os.Symlink("a.yaml", filepath.Join(dir, "link.yaml")),
		os.WriteFile(filepath.Join(dir, "binary.yaml"), []byte("\xff\xfe"), 0o600))
	p := up(t, func(o *web.Options) { o.Write, o.EditFiles = true, true })
	p.api.serve = func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(api.Status{Files: []api.FileStatus{{Path: dir + "/a.yaml"}, {Path: dir + "/link.yaml"},
			{Path: dir + "/gone.yaml"}, {Path: dir + "/binary.yaml"}, {Path: "relative.yaml"}}})
	}
	return p.login(), dir
}

func TestFiles(t *testing.T) {
	p, dir := editing(t)
	at := func(name string) string { return "/ui/files?path=" + url.QueryEscape(filepath.Join(dir, name)) }
	var doc web.File
	read := p.send("GET", at("a.yaml"), p.asPage(), "")
	if err := json.Unmarshal([]byte(read.body), &doc); err != nil || doc.Text != "type: Mesh\n" || doc.ETag == "" ||
		doc.Path != dir+"/a.yaml" {
		t.Fatalf("%d %s", read.status, read.body)
	}
	for name, x := range map[string]struct {
		method, target, match, body string
		status                      int
	}{
		"no path":         {"GET", "/ui/files", "", "", 400},
		"two paths":       {"GET", at("a.yaml") + "&path=x", "", "", 400},
		"not listed":      {"GET", at("other"), "", "", 404},
		"passwd":          {"GET", "/ui/files?path=/etc/passwd", "", "", 404},
		"traversal":       {"GET", "/ui/files?path=" + url.QueryEscape(dir+"/x/../a.yaml"), "", "", 404},
		"relative":        {"GET", "/ui/files?path=relative.yaml", "", "", 404},
		"gone":            {"GET", at("gone.yaml"), "", "", 404},
		"link":            {"GET", at("link.yaml"), "", "", 409},
		"not text":        {"GET", at("binary.yaml"), "", "", 409},
		"write a link":    {"PUT", at("link.yaml"), doc.ETag, `{"text": "x"}`, 409},
		"write another":   {"PUT", at("other"), doc.ETag, `{"text": "x"}`, 404},
		"no match":        {"PUT", at("a.yaml"), "", `{"text": "x"}`, 400},
		"any match":       {"PUT", at("a.yaml"), "*", `{"text": "x"}`, 400},
		"changed":         {"PUT", at("a.yaml"), `"0"`, `{"text": "x"}`, 409},
		"no text":         {"PUT", at("a.yaml"), doc.ETag, `{}`, 400},
		"unknown field":   {"PUT", at("a.yaml"), doc.ETag, `{"text": "x", "mode": 777}`, 400},
		"no JSON":         {"PUT", at("a.yaml"), doc.ETag, `text`, 400},
		"not UTF-8":       {"PUT", at("a.yaml"), doc.ETag, "{\"text\": \"\xff\"}", 400},
		"too large":       {"PUT", at("a.yaml"), doc.ETag, `{"text": "` + strings.Repeat("x", api.MaxBody+1) + `"}`, 413},
		"delete":          {"DELETE", at("a.yaml"), doc.ETag, "", 405},
		"without session": {"POST", at("a.yaml"), doc.ETag, "{}", 405},
	} {
		header := p.asPage()
		if x.match != "" {
			header["If-Match"] = x.match
		}
		if a := p.send(x.method, x.target, header, x.body); a.status != x.status {
			t.Errorf("%s: %d instead of %d: %.300s", name, a.status, x.status, a.body)
		}
	}
	if text, err := os.ReadFile(filepath.Join(dir, "a.yaml")); err != nil || string(text) != "type: Mesh\n" {
		t.Fatalf("the file has changed: %q %v", text, err)
	}
	const next = "type: Mesh\nname: a\n"
	body, err := json.Marshal(map[string]string{"text": next})
	agenttest.Do(t, err)
	a := p.send("PUT", at("a.yaml"), p.asPage("If-Match", doc.ETag), string(body))
	if a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	info, err := os.Stat(filepath.Join(dir, "a.yaml"))
	agenttest.Do(t, err)
	if text, err := os.ReadFile(filepath.Join(dir, "a.yaml")); err != nil || string(text) != next || info.Mode() != 0o640 {
		t.Errorf("%q %v %v", text, info.Mode(), err)
	}
	if a := p.send("PUT", at("a.yaml"), p.asPage("If-Match", doc.ETag), string(body)); a.status != 409 {
		t.Errorf("a second time: %d", a.status)
	}
	entries, err := os.ReadDir(dir)
	if agenttest.Do(t, err); len(entries) != 4 {
		t.Errorf("the directory has %v", entries)
	}
}

// The page survives a restart of the agent behind it, and says meanwhile that it is not there.
func TestAgentRestarts(t *testing.T) {
	socket := agenttest.ShortDir(t) + "/s"
	p := up(t, func(o *web.Options) {
		o.Backend = web.Proxy(&url.URL{Scheme: "http", Host: "localhost"}, "", web.Socket(socket))
	}).login()
	down := func() {
		t.Helper()
		a := p.send("GET", "/api/v1/status", p.asPage(), "")
		if a.status != 502 || !strings.Contains(a.body, `"/problems/unreachable"`) {
			t.Errorf("without an agent: %d %s", a.status, a.body)
		}
		if a := p.send("GET", "/ui/session", p.asPage(), ""); a.status != 200 || !strings.Contains(a.body, `"instance":""`) {
			t.Errorf("without an agent: %d %s", a.status, a.body)
		}
	}
	down()
	for n := range 2 {
		l, err := listenUnix(socket)
		agenttest.Do(t, err)
		srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, `{"instance": "%d"}`, n)
		})}
		ended := make(chan error, 1)
		go func() { ended <- srv.Serve(l) }()
		if a := p.send("GET", "/ui/session", p.asPage(), ""); !strings.Contains(a.body, fmt.Sprintf(`"instance":"%d"`, n)) {
			t.Errorf("agent %d: %d %s", n, a.status, a.body)
		}
		agenttest.Do(t, srv.Close())
		<-ended
		down()
	}
}

func TestExport(t *testing.T) {
	answers := map[string]string{
		"/":          `{"node": "n", "instance": "i"}`,
		"/v1/status": `{"files": [{"path": "/f", "faults": [{"reason": "r"}]}]}`,
		"/v1/kinds?size=10000": `{"items": [{"kind": "Mesh", "plural": "meshes", "global": true}, ` +
			`{"kind": "Dataplane", "plural": "dataplanes"}]}`,
		"/meshes?meta=true&size=10000": `{"items": [{"resource": {"name": "default"}}], ` +
			`"next": "/meshes?offset=10000"}`,
		"/dataplanes?meta=true&size=10000": `{"items": [{"resource": {"mesh": "default", ` +
			`"name": "a/b <c>"}}]}`,
		"/v1/dataplanes/default/a%2Fb%20%3Cc%3E/status": `{}`,
	}
	o := web.ExportOptions{Dir: filepath.Join(t.TempDir(), "out"), Files: []string{"f"}, Version: "1",
		Backend: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			text, ok := answers[r.URL.RequestURI()]
			if !ok {
				http.NotFound(w, r)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, text)
		})}
	done, err := web.Export(t.Context(), o)
	agenttest.Do(t, err)
	if done.Faults != 1 || done.Omitted != 1 {
		t.Errorf("%+v", done)
	}
	content := func() map[string]string {
		out := map[string]string{}
		agenttest.Do(t, fs.WalkDir(os.DirFS(o.Dir), ".", func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			text, err := fs.ReadFile(os.DirFS(o.Dir), name)
			out[name] = string(text)
			return err
		}))
		return out
	}
	first := content()
	var index map[string]string
	agenttest.Do(t, json.Unmarshal([]byte(first["api/index.json"]), &index))
	for _, key := range []string{"", "v1/status", "v1/kinds", "meshes", "dataplanes",
		"v1/dataplanes/default/a%2Fb%20%3Cc%3E/status"} {
		if _, ok := first["api/"+index[key]]; !ok {
			t.Errorf("no answer for %q in %v", key, index)
		}
	}
	if len(index) != len(answers) || len(first) != done.Files+1 {
		t.Errorf("%d answers, %d files of %d", len(index), len(first), done.Files)
	}
	agenttest.Contains(t, first["ui/session"], `"mode":"static"`, `"node":"n"`, `"files":["f"]`, `"write":false`)
	agenttest.Contains(t, first["index.html"], `<script src="from-file.js"></script>`)
	if !strings.Contains(first["api/"+index["meshes"]], `"next":null`) {
		t.Error("the page would read a list without an end")
	}
	if _, err := web.Export(t.Context(), o); err != nil {
		t.Errorf("over an export: %v", err)
	}
	for name, text := range content() {
		if first[name] != text {
			t.Errorf("%s differs in the second export", name)
		}
	}
	agenttest.Do(t, os.WriteFile(o.Dir+"/api/mine", nil, 0o600))
	if _, err := web.Export(t.Context(), o); err == nil || !strings.Contains(err.Error(), "api/mine") {
		t.Errorf("over a file of others: %v", err)
	}
	outside := filepath.Join(t.TempDir(), "precious")
	agenttest.Do(t, os.Remove(o.Dir+"/api/mine"), os.WriteFile(outside, nil, 0o600),
		os.WriteFile(o.Dir+"/.nearside-export", []byte("../"+filepath.Base(outside)+"\n"+outside+"\n"), 0o600))
	if _, err := web.Export(t.Context(), o); err == nil {
		t.Error("a list that does not name the files permits an export")
	}
	if _, err := os.Stat(outside); err != nil {
		t.Errorf("a file outside: %v", err)
	}
	o.Dir = filepath.Dir(outside)
	if _, err := web.Export(t.Context(), o); err == nil || !strings.Contains(err.Error(), "precious") {
		t.Errorf("into a folder of others: %v", err)
	}
}
