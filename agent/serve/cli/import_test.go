package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// export is an export of a control plane with a builtin authority.
const export = `# Product: Kuma, Version: 2.9.4, Hostname: cp, ClusterId: c, InstanceId: i
---
creationTime: "0001-01-01T00:00:00Z"
name: shop
type: Mesh
---
mesh: shop
name: shop.ca-builtin-cert-ca-1
type: Secret
data: dGhlIGNlcnRpZmljYXRlCg==
---
mesh: shop
name: shop.ca-builtin-key-ca-1
type: Secret
data: dGhlIGtleQo=
---
creationTime: "2024-01-01T00:00:00Z"
name: shop
type: Mesh
mtls:
  enabledBackend: ca-1
  backends:
  - name: ca-1
    type: builtin
---
mesh: shop
name: web-1
type: Dataplane
networking:
  address: 10.0.0.1
  inbound:
  - port: 80
    tags:
      kuma.io/protocol: http
      kuma.io/service: web
---
mesh: shop
name: web-1
type: DataplaneInsight
---
mesh: shop
name: web-2
type: Dataplane
networking:
  address: 10.0.0.2
  inbound:
  - port: 80
    tags:
      kuma.io/protocol: http
      kuma.io/service: web
---
mesh: shop
name: allow
spec:
  from:
  - targetRef:
      kind: Mesh
    default:
      action: Allow
type: MeshTrafficPermission
`

// offlineRun runs a command line without an agent.
func offlineRun(t *testing.T, code int, args ...string) (stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	if got := run(args, strings.NewReader(""), &out, &errs, nil); got != code {
		t.Errorf("%v: exit code %d, want %d: %s%s", args, got, code, out.String(), errs.String())
	}
	return out.String(), errs.String()
}

func tempFile(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func says(t *testing.T, text string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(text, want) {
			t.Errorf("want %q in\n%s", want, text)
		}
	}
}

// TestImport writes an export to a folder that validate accepts.
func TestImport(t *testing.T) {
	file, folder := tempFile(t, "export.yaml", export), filepath.Join(t.TempDir(), "mesh")
	out, errs := offlineRun(t, 0, "import", "-f", file)
	says(t, errs, "nothing is written; --write DIR writes the resources")
	for _, line := range []string{
		"changed 2 Secret/shop/shop.ca-builtin-cert-ca-1, Secret/shop/shop.ca-builtin-key-ca-1 a file, which Mesh/shop uses",
		"changed 1 Mesh/shop mtls.backends[0]: the certificate and key of the builtin authority are in files",
		"left out 1 Mesh/shop a declaration, which document 4",
		"taken 3 Dataplane/shop/web-1, Dataplane/shop/web-2, MeshTrafficPermission/shop/allow -",
	} {
		says(t, strings.Join(strings.Fields(out), " "), line)
	}
	out, _ = offlineRun(t, 0, "import", "-f", file, "-o", "wide")
	says(t, strings.Join(strings.Fields(out), " "), "taken 1 Dataplane/shop/web-2 (")
	out, _ = offlineRun(t, 0, "import", "-f", file, "-o", "json")
	says(t, out, `"version": "2.9.4"`, `"action": "changed"`)

	_, errs = offlineRun(t, 0, "import", "-f", file, "--write", folder)
	says(t, errs, "5 files written to "+folder)
	_, errs = offlineRun(t, 0, "validate", "-f", folder, "--no-proxies")
	says(t, errs, "valid: 4 resources in 3 files")
	key := filepath.Join(folder, "secrets/shop/shop.ca-builtin-key-ca-1")
	data, err := os.ReadFile(key)
	if st, _ := os.Stat(key); err != nil || string(data) != "the key\n" || st.Mode() != 0o600 {
		t.Errorf("%q %v %v", data, st, err)
	}
	mesh, _ := os.ReadFile(filepath.Join(folder, "meshes.yaml"))
	says(t, string(mesh), "type: provided", "file: "+key+"\n")
	_, errs = offlineRun(t, 1, "import", "-f", file, "--write", folder)
	says(t, errs, "the folder is not empty")
}

// TestImportRefuses checks an export with a document that cannot be taken.
func TestImportRefuses(t *testing.T) {
	file := tempFile(t, "export.yaml", "type: Mesh\nname: shop\n---\ntype: MeshGateway\nmesh: shop\nname: edge\n")
	folder := filepath.Join(t.TempDir(), "mesh")
	out, errs := offlineRun(t, 65, "import", "-f", file, "--write", folder)
	says(t, out, "refused", "MeshGateway/shop/edge (")
	says(t, errs, "1 document refused, and nothing is written")
	if _, err := os.Stat(folder); err == nil {
		t.Error("the folder exists")
	}
	offlineRun(t, 0, "import", "-f", file, "--write", folder, "--leave-out")
	_, errs = offlineRun(t, 0, "validate", "-f", folder)
	says(t, errs, "valid: 1 resource in 1 file")
	_, errs = offlineRun(t, 64, "import", "-f", file, "--leave-out")
	says(t, errs, "give --write DIR")
	offlineRun(t, 65, "import", "-f", tempFile(t, "empty.yaml", "# nothing\n"))

	_, errs = offlineRun(t, 65, "import", "-f", tempFile(t, "new.yaml",
		"# Product: Kuma, Version: 3.0.0, Hostname: a\n---\ntype: Mesh\nname: a\n---\ntype: Mesh\nname: b\n"),
		"--write", filepath.Join(t.TempDir(), "new"), "--leave-out")
	says(t, errs, "the export is from Kuma 3.0.0")
}

// TestDiffServed compares a proxy with the config that it had before a change, and with an equal
// one.
func TestDiffServed(t *testing.T) {
	const timeout = "---\ntype: MeshTimeout\nmesh: shop\nname: t\nspec: {to: [{targetRef: {kind: Mesh}, " +
		"default: {connectionTimeout: 77s}}]}\n"
	now := strings.Replace(export, "---\nmesh: shop\nname: web-1\ntype: DataplaneInsight", "  outbound:\n"+
		"  - port: 1001\n    tags:\n      kuma.io/service: web\n"+
		"---\nmesh: shop\nname: web-1\ntype: DataplaneInsight", 1)
	folder := filepath.Join(t.TempDir(), "mesh")
	offlineRun(t, 0, "import", "-f", tempFile(t, "export.yaml", now), "--write", folder)
	config, _ := offlineRun(t, 0, "inspect", "dataplane", "web-1", "-m", "shop", "-f", folder, "--type=config",
		"-o", "json")
	served := tempFile(t, "web-1.json", config)
	out, _ := offlineRun(t, 0, "diff", "-f", folder, "-m", "shop", "--served", served)
	says(t, out, "1 of 1 dataplane as served\n")
	other := tempFile(t, "timeout.yaml", timeout)
	out, _ = offlineRun(t, 1, "diff", "-f", folder, "-f", other, "-m", "shop", "--served", filepath.Dir(served))
	says(t, out, `Cluster.connectTimeout added: "77s"`, "1 place on 1 proxy, for example web of shop/web-1",
		"cause: a timeout", "0 of 1 dataplane as served")
	out, _ = offlineRun(t, 1, "diff", "-f", folder, "-f", other, "-m", "shop", "--served", served, "-o", "summary")
	says(t, out, "shop/web-1: ", " differences\n")
	out, _ = offlineRun(t, 1, "diff", "-f", folder, "-f", other, "-m", "shop", "--served", served, "-o", "json")
	says(t, out, `"field": "Cluster.connectTimeout"`, `"computed": "77s"`)
	_, errs := offlineRun(t, 2, "diff", "-f", folder, "-m", "shop", "--served", tempFile(t, "nobody.json", config))
	says(t, errs, "the config of dataplane nobody in mesh shop", "name the file after its dataplane")
	_, errs = offlineRun(t, 65, "diff", "-f", folder, "-m", "shop", "--served", tempFile(t, "web-1.json", "{}"))
	says(t, errs, "it contains no resources")
	offlineRun(t, 64, "diff", "-f", folder, "--served", served, "--shadow")
}

// TestFromKumaPage runs the commands of nearside on docs/from-kuma.md, and compares the lines that
// the page shows.
func TestFromKumaPage(t *testing.T) {
	page, err := os.ReadFile("../../../docs/from-kuma.md")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "examples/from-kuma"), os.DirFS("../../../examples/from-kuma")); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	codes := map[string]int{"diff": 1}
	commands := 0
	for block := range strings.SplitSeq(string(page), "```console\n") {
		command, shown, is := strings.Cut(block, "\n")
		args, own := strings.CutPrefix(command, "$ bin/nearside ")
		if !is || !own {
			continue
		}
		commands++
		list := strings.Fields(args)
		out, errs := offlineRun(t, codes[list[0]], list...)
		shown, _, _ = strings.Cut(shown, "```")
		for line := range strings.Lines(shown) {
			if !strings.Contains(out+errs, line) {
				t.Errorf("%s: the page shows %q, and the output is\n%s%s", command, line, out, errs)
			}
		}
	}
	if commands != 3 {
		t.Errorf("%d commands on the page", commands)
	}
}
