package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// bundleOf creates a debug bundle and returns its files.
func bundleOf(t *testing.T, d *daemon) map[string][]byte {
	t.Helper()
	file := filepath.Join(t.TempDir(), "bundle.tar.gz")
	if code, out, errs := d.nearside("", "debug", "bundle", "-O", file); code != command.ExitOK ||
		!strings.Contains(out, file) {
		t.Fatalf("exit code %d: %s%s", code, out, errs)
	}
	if st, err := os.Stat(file); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", st.Mode(), err)
	}
	if code, _, errs := d.nearside("", "debug", "bundle", "-O", file); code == command.ExitOK ||
		!strings.Contains(errs, "exists") {
		t.Errorf("over a file that exists: exit code %d: %s", code, errs)
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]byte{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		out[strings.TrimPrefix(h.Name, "nearside/")] = b
	}
}

// TestDebug checks that a debug bundle is complete, that profiles are served, and that the log
// level can be changed.
func TestDebug(t *testing.T) {
	t.Parallel()
	dir := quickTemp(t)
	write(t, dir+"/resources/web.yaml", webDoc)
	d := start(t, dir)
	files := bundleOf(t, d)
	for name, holds := range map[string]string{"version.json": "product", "status.txt": "resources", "check.txt": "agent",
		"metrics.txt": "nearside_", "resources/dataplanes.json": "192.0.2.1",
		"dataplanes.json": "disconnected", "status.json": "revision", "config.yaml": "node:",
		"log.txt": "the agent is ready", "history/dataplanes/default/web.json": `"revision": `} {
		if !bytes.Contains(files[name], []byte(holds)) {
			t.Errorf("%s lacks %q: %.200s", name, holds, files[name])
		}
	}
	if text := files["errors.txt"]; text != nil {
		t.Errorf("not had: %s", text)
	}
	if _, err := gzip.NewReader(bytes.NewReader(files["heap.pprof"])); err != nil {
		t.Errorf("the profile: %v", err)
	}
	if code, out, _ := d.nearside("", "debug", "pprof", "goroutine"); code != command.ExitOK ||
		!strings.HasPrefix(out, "\x1f\x8b") {
		t.Errorf("goroutine: exit code %d, %.20q", code, out)
	}
	if code, _, errs := d.nearside("", "debug", "pprof", "nothing"); code == command.ExitOK ||
		!strings.Contains(errs, `"nothing" is invalid; use one of heap, allocs`) {
		t.Errorf("exit code %d: %s", code, errs)
	}
	if code, _, errs := d.nearside("", "debug", "pprof", "cpu", "--seconds", "31"); code == command.ExitOK ||
		!strings.Contains(errs, "seconds") || !strings.Contains(errs, "30") {
		t.Errorf("a long one: exit code %d: %s", code, errs)
	}
	for _, c := range [][2]string{{"", "info"}, {"debug", "debug"}, {"", "debug"}} {
		args := []string{"debug", "loglevel"}
		if c[0] != "" {
			args = append(args, c[0])
		}
		if code, out, errs := d.nearside("", args...); code != command.ExitOK || out != c[1]+"\n" {
			t.Errorf("%q: exit code %d: %s%s", args, code, out, errs)
		}
	}
	if code, _, errs := d.nearside("", "debug", "loglevel", "loud"); code != command.ExitUsage ||
		!strings.Contains(errs, "one of debug, info") {
		t.Errorf("exit code %d: %s", code, errs)
	}
}

// TestTypes checks that an unknown type gets a suggestion, and that lists can be filtered by labels
// and tags.
func TestTypes(t *testing.T) {
	t.Parallel()
	dir := quickTemp(t)
	write(t, dir+"/resources/web.yaml", webDoc+"---\ntype: Dataplane\nmesh: default\nname: gate\nlabels: {team: b}\n"+
		"networking:\n  address: 192.0.2.2\n  gateway: {tags: {kuma.io/service: gate}}\n")
	d := start(t, dir)
	for typ, want := range map[string]string{
		"dataplan":   "did you mean dataplane",
		"meshtimeot": "did you mean meshtimeout",
		"xyzzyxyzzy": "nearside api-resources lists them",
	} {
		if code, _, errs := d.nearside("", "get", typ); code != command.ExitUsage || !strings.Contains(errs, want) {
			t.Errorf("%s: exit code %d: %s", typ, code, errs)
		}
	}
	_, out, _ := d.nearside("", "api-resources")
	agenttest.Contains(t, out, "NAME", "dataplanes", "dp", "Dataplane", "legacy policy")
	for selector, want := range map[string]string{
		"kuma.io/service=web":         "dataplane/web\n",
		"kuma.io/service":             "dataplane/gate\ndataplane/web\n",
		"kuma.io/service=gate,team=b": "dataplane/gate\n",
		"team=c":                      "",
		"kuma.io/service=web,team=b":  "",
		"team":                        "dataplane/gate\n",
	} {
		if code, out, errs := d.nearside("", "get", "dataplanes", "-o", "name", "-l", selector); code != command.ExitOK ||
			out != want {
			t.Errorf("-l %s: exit code %d, %q %s", selector, code, out, errs)
		}
	}
	for _, wrong := range [][]string{{"get", "dataplanes", "-l", "!team"}, {"get", "dataplane", "web", "-l", "team=b"}} {
		if code, _, errs := d.nearside("", wrong...); code != command.ExitUsage || !strings.Contains(errs, "-l ") {
			t.Errorf("%v: exit code %d: %s", wrong, code, errs)
		}
	}
}

// TestGetNamespace lists the resources of a Kubernetes namespace, and shows one by its short name.
func TestGetNamespace(t *testing.T) {
	t.Parallel()
	dir := quickTemp(t)
	service := "---\napiVersion: kuma.io/v1alpha1\nkind: MeshService\nmetadata: {name: web, namespace: %s}\n" +
		"spec: {selector: {dataplaneTags: {app: web}}, ports: [{port: 80}]}\n"
	write(t, dir+"/resources/web.yaml", webDoc+fmt.Sprintf(service, "shop")+fmt.Sprintf(service, "bank"))
	d := start(t, dir)
	for args, want := range map[string]string{
		"get meshservices -o name -n shop":           "meshservice/web.shop\n",
		"get msvc -o name -n shop -l kuma.io/mesh":   "",
		"get meshservices -o name -n none":           "",
		"get meshservice/web -n bank -o name":        "meshservice/web.bank\n",
		"get meshservice web.bank -n bank -o name":   "meshservice/web.bank\n",
		"get meshservices -o name --namespace =bank": "",
	} {
		if code, out, errs := d.nearside("", strings.Fields(args)...); code != command.ExitOK || out != want {
			t.Errorf("%s: exit code %d, %q %s", args, code, out, errs)
		}
	}
	if code, _, errs := d.nearside("", "get", "meshservice", "web", "-n", "none"); code == command.ExitOK ||
		!strings.Contains(errs, "web.none") {
		t.Errorf("exit code %d: %s", code, errs)
	}
}

// TestDeleteFiles checks that resources in a file are deleted, meshes last, and that failures are
// reported.
func TestDeleteFiles(t *testing.T) {
	t.Parallel()
	d := start(t, quickTemp(t))
	doc := "type: Mesh\nname: shop\n---\n" +
		strings.ReplaceAll(webDoc[strings.Index(webDoc, "type: Dataplane"):], "mesh: default", "mesh: shop")
	d.must(doc, "apply", "-f", "-")
	if out := d.must(doc, "delete", "-f", "-", "--dry-run", "-o", "name"); out != "dataplane/web\n" {
		t.Errorf("dry run: %s", out)
	}
	agenttest.Contains(t, d.must(doc, "delete", "-f", "-"), "dataplane/web in mesh shop deleted", "mesh/shop deleted")
	if code, _, errs := d.nearside(doc, "delete", "-f", "-"); code == command.ExitOK ||
		!strings.Contains(errs, "0 of 2 resources deleted") || !strings.Contains(errs, "does not exist") {
		t.Errorf("once more: exit code %d: %s", code, errs)
	}
	for want, args := range map[string][]string{
		"omit one of them":            {"delete", "mesh", "shop", "-f", "-"},
		"give the resource to delete": {"delete"},
	} {
		if code, _, errs := d.nearside(doc, args...); code != command.ExitUsage || !strings.Contains(errs, want) {
			t.Errorf("%v: exit code %d: %s", args, code, errs)
		}
	}
}

// TestStatusExitCode checks that errors in files are counted and affect the exit code, and warnings
// do not.
func TestStatusExitCode(t *testing.T) {
	t.Parallel()
	dir := quickTemp(t)
	write(t, dir+"/resources/web.yaml", webDoc)
	d := start(t, dir)
	if code, out, errs := d.nearside("", "status", "--exit-code"); code != command.ExitOK {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
	write(t, dir+"/resources/bad.yaml", "type: Dataplane\nname: x\n")
	agenttest.Eventually(t, "the fault is seen", func() bool {
		code, _, _ := d.nearside("", "status", "--exit-code", "-o", "json")
		return code == command.ExitNo
	})
	code, out, _ := d.nearside("", "status")
	if code != command.ExitOK {
		t.Errorf("without --exit-code: %d", code)
	}
	if !regexp.MustCompile(`(?m)^problems   [1-9][0-9]*$`).MatchString(out) {
		t.Errorf("%s", out)
	}
}

// TestTokenWarnings checks that token create warns about proxies that the agent does not have.
func TestTokenWarnings(t *testing.T) {
	t.Parallel()
	dir := quickTemp(t)
	write(t, dir+"/resources/web.yaml", webDoc)
	d := start(t, dir)
	for args, want := range map[string]string{
		"--name web":                            "",
		"--name w*":                             "",
		"--name own --service own":              "",
		"--name wep":                            `warning: the agent has no Dataplane that matches --name "wep"`,
		"--name web -m other":                   `warning: the agent has no mesh "other"`,
		"--name out --proxy-type egress":        `warning: the agent has no ZoneEgress that matches --name "out"`,
		"--api --subject nobody --valid-for 1h": "",
	} {
		line := append([]string{"token", "create", "--set", "paths.state=" + dir + "/state"}, strings.Fields(args)...)
		code, out, errs := d.nearside("", line...)
		if code != command.ExitOK || out == "" || !strings.Contains(errs, want) || want == "" && errs != "" {
			t.Errorf("%s: exit code %d: %s", args, code, errs)
		}
	}
}
