package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// TestSecretsStayInside stores private keys, makes the agent produce all kinds of output, and
// searches for the keys in every API response, command output, log line, and file except those
// meant for keys.
func TestSecretsStayInside(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		t.Run(format, func(t *testing.T) {
			dir := quickTemp(t)
			input := t.TempDir() // files written by the operator
			p := &planted{}
			p.docs = secretDocs(t, &p.leaks)
			write(t, dir+"/resources/filed.yaml", p.docs["filed"]+"\n---\n"+dataplaneIn("filed", "web"))
			for name, doc := range p.docs {
				write(t, filepath.Join(input, strings.ReplaceAll(name, " ", "-")+".json"), doc)
			}
			p.leaks.Text("token of the API", "a-bearer-token-that-nobody-may-see")
			write(t, input+"/token", "a-bearer-token-that-nobody-may-see\n")
			if err := os.Chmod(input+"/token", 0o600); err != nil {
				t.Fatal(err)
			}
			poolKey := strings.Repeat("Kn0b", 10) + "Kn0=" // 32 bytes in base64
			p.leaks.Text("key of the pool", poolKey)
			agenttest.WriteSecret(t, input+"/keyring", poolKey+"\n")
			set := []string{"log.level=debug", "log.format=" + format, "api.tcp=127.0.0.1:0",
				"api.tokenFile=" + input + "/token", "gossip.bind=127.0.0.1:0", "gossip.keyringFile=" + input + "/keyring"}
			p.daemon = launch(t, dir, nil, set...)
			p.says("the agent is ready")
			p.http = unixHTTP(p.socket())
			p.http.Transport.(*http.Transport).DisableKeepAlives = false // thousands of consecutive requests
			exposed := dir + "/resources/filed.yaml contains a secret and is accessible to other users (mode 0644)"
			if _, text := p.command("status"); !strings.Contains(text, exposed) {
				t.Errorf("status does not say that %s: %s", exposed, text)
			}
			if _, text := p.command("check"); !strings.Contains(text, exposed) {
				t.Errorf("check does not say that %s: %s", exposed, text)
			}
			if err := os.Chmod(dir+"/resources/filed.yaml", 0o600); err != nil {
				t.Fatal(err)
			}
			agenttest.Eventually(t, "the file is private", func() bool {
				_, text := p.command("status")
				return !strings.Contains(text, "WARN file-exposed: "+dir+"/resources")
			})
			events := p.stream("/v1/events")
			p.plant()
			p.serve("held.web")
			p.serve("built.web")
			p.serve("filed.web")
			p.keysOfTheAgent()
			p.admin("held.web")
			p.everyPath()
			p.everyWrite()
			p.everyCommand(input)
			if text := events(); !strings.Contains(text, "event: nack\n") || !strings.Contains(text, "event: change\n") {
				t.Errorf("the events have no rejection or no change: %s", text)
			}
			// Scan also after the death of a proxy, invalid input, SIGHUP, and the agent's end.
			if code := p.end(syscall.SIGTERM); code != 0 {
				t.Errorf("the agent ended with %d", code)
			}
			p.seen("the log", []byte(p.logged()))
			second := launch(t, dir, nil, set...) // reads everything again
			second.says("the agent is ready")
			if code := second.end(syscall.SIGTERM); code != 0 {
				t.Errorf("the agent ended with %d", code)
			}
			p.seen("the log after a restart", []byte(second.logged()))
			if err := os.Chmod(dir+"/state/nearside.db", 0o644); err != nil {
				t.Fatal(err)
			}
			suspended := launch(t, dir, nil, set...)
			suspended.says("the agent is suspended", "is accessible to other users (mode 0644)", "chmod 0600")
			if code := suspended.end(syscall.SIGTERM); code != 0 {
				t.Errorf("the agent ended with %d", code)
			}
			p.seen("the log of a suspended agent", []byte(suspended.logged()))
			if err := os.Chmod(dir+"/state/nearside.db", 0o600); err != nil {
				t.Fatal(err)
			}
			p.files(dir)
			t.Logf("%d answers, outputs and files were searched", p.answers)
		})
	}
}

// documented matches an API path in docs/api.md.
var documented = regexp.MustCompile("`(GET(?:\\\\\\|[A-Z]+)*) (/[^`]*)`")

// everyPath requests every path with a GET in docs/api.md, with every name that the agent knows.
func (p *planted) everyPath() {
	p.t.Helper()
	doc, err := os.ReadFile("../../docs/api.md")
	if err != nil {
		p.t.Fatal(err)
	}
	kinds, err := p.api().Kinds(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	names := map[string]string{"meshes": "held", "dataplanes": "web", "external-services": "outside",
		"meshexternalservices": "beyond", "meshproxypatches": "patch"}
	asked, answered := map[string]bool{}, map[string]bool{}
	for _, m := range documented.FindAllStringSubmatch(string(doc), -1) {
		if m[2] == "/v1/events" {
			continue // it does not end: see stream
		}
		for _, mesh := range []string{"held", "filed", "built"} {
			for _, k := range kinds {
				path := strings.NewReplacer("{plural}", k.Plural, "{mesh}", mesh, "{name}", names[k.Plural],
					"?allNodes=", "?allNodes=true", "{item}", "config", "{kind}", "Mesh").Replace(m[2])
				if strings.Contains(m[2], "/dataplanes/{name}") || strings.Contains(m[2], "/dataplanes/{mesh}") {
					path = strings.NewReplacer("{mesh}", mesh, "{name}", "web").Replace(m[2])
				}
				for _, query := range []string{
					"", "?meta=true", "?verbose", "?include=diff&shadow=true", "?include=fields", "?computed=true", "?include=reach",
					"?mesh=" + mesh, "?verb=get&kind=Mesh&name=" + mesh,
				} {
					if asked[path+query] {
						continue // the same for another mesh or kind
					}
					asked[path+query] = true
					status, _ := p.ask("GET", path+query, "")
					answered[m[2]] = answered[m[2]] || status == 200
				}
				if !strings.Contains(m[2], "{plural}") {
					break
				}
			}
		}
	}
	if status, _ := p.ask("GET", "/v1/debug/log", ""); status != 200 {
		p.t.Errorf("GET /v1/debug/log: %d", status)
	}
	for path, ok := range answered {
		if !ok && !strings.Contains(path, "zone") {
			p.t.Errorf("GET %s was never answered", path)
		}
	}
	if len(asked) < 500 || len(answered) < 20 {
		p.t.Errorf("only %d requests for %d paths", len(asked), len(answered))
	}
}

// everyWrite makes all kinds of writes: valid ones, dry runs, unchanged resources, and refused
// ones.
func (p *planted) everyWrite() {
	p.t.Helper()
	other := p.docs["other authority of held"]
	want := func(status int, method, path, body string) []byte {
		p.t.Helper()
		got, answer := p.ask(method, path, body)
		if got != status {
			p.t.Errorf("%s %s: %d instead of %d: %.300s", method, path, got, status, answer)
		}
		return answer
	}
	for _, path := range []string{
		"/meshes/held", "/meshes/held/external-services/outside", "/meshes/held/meshexternalservices/beyond",
		"/meshes/held/meshproxypatches/patch",
	} {
		shown := want(200, "GET", path, "")
		if !bytes.Contains(shown, []byte("[redacted]")) {
			p.t.Errorf("%s shows no mark: %s", path, shown)
		}
		if answer := want(200, "PUT", path, string(shown)); !bytes.Contains(answer, []byte(`"unchanged"`)) {
			p.t.Errorf("%s is changed when it is written back: %s", path, answer)
		}
		want(200, "PUT", path+"?dryRun=true", string(shown))
		want(200, "POST", "/v1/diff", string(shown))
		p.ask("DELETE", path+"?dryRun=true", "")
	}
	want(200, "POST", "/v1/diff", other)
	want(200, "POST", "/v1/diff?dataplane=web", strings.ReplaceAll(p.docs["outside"], "192.0.2.9", "192.0.2.10"))
	want(200, "PUT", "/meshes/held?dryRun=true", other)
	want(200, "PUT", "/meshes/held", other)
	want(200, "GET", "/v1/history/meshes/held", "")
	history, err := p.api().History(p.t.Context(), "meshes", "", "held")
	if err != nil {
		p.t.Fatal(err)
	}
	want(200, "POST", "/v1/rollback",
		fmt.Sprintf(`{"type":"Mesh","name":"held","revision":%d,"dryRun":true}`, history.Items[0].Revision))
	want(200, "POST", "/v1/rollback",
		fmt.Sprintf(`{"type":"Mesh","name":"held","revision":%d}`, history.Items[0].Revision))
	want(200, "POST", "/v1/explain", `{"connection":{"mesh":"held","from":"web","to":"outside:443"}}`)
	want(200, "POST", "/v1/explain",
		`{"request":{"mesh":"held","from":"web","to":"outside:443","method":"GET","path":"/"}}`)
	want(200, "POST", "/v1/explain", `{"policy":{"type":"MeshProxyPatch","mesh":"held","name":"patch","dataplane":"web"}}`)
	p.ask("POST", "/v1/wait",
		fmt.Sprintf(`{"type":"Mesh","name":"held","revision":%d,"timeout":"1s"}`, history.Items[0].Revision))
	for name, doc := range p.docs {
		for from, to := range map[string]string{`"key":`: `"keyy":`, `"inlineString":`: `"inline":`,
			`"clientKey":{`: `"clientKey":{"file":"/x",`, `"type":`: `"tpye":`,
			`"inlineString":"`: `"inlineString":["`, "BEGIN PRIVATE": "BEGIN PRIVAT", `"privateKey`: `"privateKye`,
			`\"privateKey\":`: `\"privateKye\":`, "}}": "}", `"value":`: `"value":1,"values":`,
			`"inlineString":"-----`: `"inlineString":"\u0000-----`} {
			bad := strings.ReplaceAll(doc, from, to)
			if bad == doc {
				continue
			}
			p.ask("PUT", "/meshes/held?dryRun=true", bad)
			for _, path := range []string{"/v1/apply?dryRun=true", "/v1/diff", "/v1/rollback", "/v1/explain", "/v1/wait"} {
				p.ask("POST", path, bad)
			}
		}
		p.ask("POST", "/v1/wait", doc)
		p.ask("PUT", "/meshes/"+name[:3]+"?dryRun=true", doc)
		asked := strings.ReplaceAll(doc, "5ecre7-pa55word-0f-a-pa7ch", "") // the answer quotes what was asked for
		p.ask("GET", "/"+url.PathEscape(asked[:min(len(asked), 4000)]), "")
	}
}

// everyCommand runs the commands that print data, in all output formats, and offline commands.
func (p *planted) everyCommand(input string) {
	p.t.Helper()
	resources := []string{"mesh/held", "mesh/filed", "external-services/outside", "meshexternalservice/beyond",
		"meshproxypatch/patch", "dataplane/web", "meshes", "meshproxypatches", "external-services"}
	offline := []string{"-f", p.dir + "/resources", "-f", input + "/held.json", "-f", input + "/outside.json",
		"-f", input + "/beyond.json", "-f", input + "/patch.json"}
	for _, format := range []string{"table", "wide", "text", "summary", "jsonpatch", "json", "yaml", "name"} {
		out := []string{"-o", format}
		for _, r := range resources {
			p.command(append([]string{"get", r, "-m", "held"}, out...)...)
			p.command(append([]string{"history", r, "-m", "held"}, out...)...)
		}
		p.command(append([]string{"inspect", "dataplanes"}, out...)...)
		p.command(append([]string{"inspect", "services", "-A"}, out...)...)
		for _, typ := range []string{"config", "rules", "policies", "status"} {
			p.command(append([]string{"inspect", "dataplane", "web", "-m", "held", "--type", typ}, out...)...)
			p.command(append(append([]string{"inspect", "dataplane", "web", "-m", "filed", "--type", typ}, offline...),
				out...)...)
		}
		p.command(append([]string{"inspect", "dataplane", "web", "-m", "held", "--computed"}, out...)...)
		for _, c := range [][]string{{"status"}, {"check"}, {"proxy", "config", "web", "-m", "held"},
			{"proxy", "logs", "web", "-m", "held"}, {"version"},
			{"explain", "policy", "meshproxypatch/patch", "--dataplane", "web", "-m", "held"},
			{"explain", "connection", "--from", "web", "--to", "outside:443", "-m", "held"}, {"validate", "-f", input},
			{"migrate", "-m", "held"}, {"migrate", "-m", "filed"},
			{"apply", "--dry-run", "-f", input + "/other-authority-of-held.json"},
			{"diff", "-f", input + "/other-authority-of-held.json"},
			{"diff", "-f", input + "/other-authority-of-held.json", "--against", input + "/held.json"},
			{"delete", "meshproxypatch/patch", "-m", "held", "--dry-run"},
			{"wait", "mesh/held", "--timeout", "1s"}} {
			if c[0] == "wait" && format != "json" {
				continue // too slow
			}
			p.command(append(c, out...)...)
		}
	}
	bundled := bundleOf(p.t, p.daemon)
	if bundled["configs/meshes/held/dataplanes/web.json"] == nil {
		p.t.Error("the bundle has no config of a proxy")
	}
	for name, text := range bundled {
		p.seen("the bundle's "+name, text)
	}
	if code, text := p.command("diff", "-f", input+"/other-authority-of-held.json", "--against", input+"/held.json",
		"-o", "json"); code != 0 || !strings.Contains(text, "[redacted 2]") {
		p.t.Errorf("a new key does not show in a diff: %d %s", code, text)
	}
	// The output of get can be applied. A file with a placeholder for a secret cannot be used
	// without the agent.
	_, shown, _ := p.nearside("", "get", "mesh/held", "-o", "yaml")
	if code, stdout, stderr := p.nearside(shown, "apply", "-f", "-"); code != 0 || !strings.Contains(stdout, "unchanged") {
		p.t.Errorf("what get prints is not applied: %d %s %s", code, stdout, stderr)
	}
	if code, stdout, stderr := p.nearside(shown, "diff", "-f", "-"); code != 0 {
		p.t.Errorf("what get prints is not compared: %d %s %s", code, stdout, stderr)
	}
	if code, stdout, stderr := p.nearside(shown, "validate", "-f", "-"); code != 65 ||
		!strings.Contains(stdout+stderr, "set the secret itself") {
		p.t.Errorf("a file with a mark is taken: %d %s %s", code, stdout, stderr)
	}
}

// files scans every file below the agent's directory, except those meant for secrets, which only
// their owner can read.
func (p *planted) files(dir string) {
	p.t.Helper()
	inside := regexp.MustCompile(`^state/(nearside\.db|identity/[^/]+/(ca|proxy)-[^/]+\.pem)$|^resources/filed\.yaml$`)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		st, err := d.Info()
		if err != nil {
			return err
		}
		if strings.HasPrefix(name, "state/") && st.Mode().Perm() != 0o600 && !strings.HasSuffix(name, ".lock") {
			p.t.Errorf("%s has the mode %v", name, st.Mode())
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		text, err := io.ReadAll(bufio.NewReader(f))
		if inside.MatchString(name) {
			if p.leaks.In(text) == "" {
				p.t.Errorf("%s holds no secret: does the scan find any?", name)
			}
			return err
		}
		p.seen(name, text)
		return err
	})
	if err != nil {
		p.t.Fatal(err)
	}
}
