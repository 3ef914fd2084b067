package uitest_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/google/go-cmp/cmp"

	"github.com/nearside-mesh/nearside/agent/test/agenttest"
	"github.com/nearside-mesh/nearside/agent/test/uitest/chromium"
)

const (
	editor   = ".editor textarea"
	complete = `document.querySelector(".suggestions:not([hidden]) [role=option]")?.textContent.startsWith(%q)`
)

// press clicks the button with a text as soon as it is enabled.
func press(p *chromium.Page, text string) {
	find := `[...document.querySelectorAll("main button")].find(b => b.textContent === ` + strconv.Quote(text) + `)`
	p.Until(find + ` && !` + find + `.disabled`)
	p.Eval(find+`.click()`, nil)
}

// TestChange writes a policy with completion, applies it as a shadow policy, lets it act, rolls it
// back, edits a file, and deletes a resource.
func TestChange(t *testing.T) {
	b := chromium.Start(t)
	n := newNode(t, fromQuickstart)
	t.Run("policy", func(t *testing.T) {
		p := b.Page(t)
		p.Open(open(t, p, n, "--write") + "#/change")
		p.Until(`document.querySelector("` + editor + `")`)
		p.Click(editor)
		p.Type("ty")
		p.Until(fmt.Sprintf(complete, "type"))
		p.Press("ArrowDown", "Enter")
		p.Type("MeshTime")
		p.Until(fmt.Sprintf(complete, "MeshTimeout"))
		p.Press("ArrowDown", "Enter", "Enter")
		p.Type("mesh: default\nname: a\nspec:")
		p.Press("Enter")
		p.Type("ta")
		p.Until(fmt.Sprintf(complete, "targetRef proxies"))
		p.Until(`document.querySelector(".faults")?.textContent.includes("ta")`)
		p.Until(fmt.Sprintf(complete, "targetRef proxies")) // the faults do not close it
		p.Press("Backspace", "Backspace")
		p.Type("to:")
		p.Press("Enter")
		p.Type("- targetRef: {kind: MeshServ")
		p.Until(fmt.Sprintf(complete, "MeshService"))
		p.Press("ArrowDown", "Enter")
		p.Type(", name: backend}")
		p.Press("Enter")
		p.Type("  default: {http: {requestTimeout: 7x}}")
		p.Until(`document.querySelector(".faults")?.textContent.includes("Line 7")`)
		has(t, p, ".faults", "spec.to[0].default.http.requestTimeout", `"7x" is not a duration`)
		var text string
		p.Eval(`document.querySelector("`+editor+`").value`, &text)
		const want = "type: MeshTimeout\nmesh: default\nname: a\nspec:\n  to:\n" +
			"    - targetRef: {kind: MeshService, name: backend}\n      default: {http: {requestTimeout: 7x}}"
		if diff := cmp.Diff(want, text); diff != "" {
			t.Fatal(diff)
		}
		write(p, strings.ReplaceAll(want, "7x", "7s"))
		press(p, "Make it a shadow policy")
		p.Until(`document.querySelector(".effect")?.textContent.includes("1 of 5 proxies change")`)
		press(p, "Apply as shadow policy")
		p.Until(`document.querySelector(".wait .badge")?.textContent === "shadow"`)
		press(p, "Make it act")
		p.Until(`document.querySelector(".effect")?.textContent.includes("virtualHosts[backend]")`)
		has(t, p, ".effect", "MeshTimeout/default/a", "5s", "7s")
		press(p, "Apply")
		p.Until(`document.querySelector(".wait .badge")?.textContent === "applied"`)
		press(p, "Roll back")
		p.Until(`document.querySelector("main").textContent.includes("The change is taken back")`)
		p.Until(`document.querySelector(".wait .badge")?.textContent === "shadow"`)
	})
	t.Run("file", func(t *testing.T) {
		p := b.Page(t)
		p.Open(open(t, p, n, "--write") + "#/change?type=Mesh&name=default")
		p.Until(`document.querySelector("` + editor + `")?.value.startsWith("type: Mesh\n")`)
		write(p, meshWithTLS)
		press(p, "Show the effect")
		p.Until(`document.querySelector(".effect")?.textContent.includes("5 of 5 proxies change")`)
		press(p, "Save the file")
		p.Until(`document.querySelector(".wait .badge")?.textContent === "applied"`)
		text, err := os.ReadFile(n.path("resources/00-mesh.yaml"))
		agenttest.Do(t, err)
		if diff := cmp.Diff(meshWithTLS, string(text)); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("delete", func(t *testing.T) {
		p := b.Page(t)
		p.Open(open(t, p, n, "--write") + "#/policy?type=MeshTimeout&mesh=default&name=a")
		press(p, "Delete…")
		press(p, "Delete MeshTimeout a")
		p.Until(`document.querySelector("main").textContent.includes("does not exist")`)
	})
	t.Run("read-only", func(t *testing.T) {
		p := b.Page(t)
		p.Open(open(t, p, n) + "#/change?type=MeshTimeout&mesh=default&name=backend-timeouts")
		p.Until(`document.querySelector("` + editor + `")?.value.includes("requestTimeout: 5s")`)
		has(t, p, "main", "is managed by the file", "nearside ui --write")
		p.Until(`[...document.querySelectorAll("main button")].find(b => b.textContent === "Apply").disabled`)
		press(p, "Show the effect")
		p.Until(`document.querySelector(".effect")?.textContent.includes("No config")`)
	})
}

// write replaces the text of the editor.
func write(p *chromium.Page, text string) {
	p.Eval(`(text => {
		const box = document.querySelector("`+editor+`");
		box.value = text;
		box.dispatchEvent(new Event("input"));
	})(`+strconv.Quote(text)+`)`, nil)
}

// TestSources shows the policy behind a line of a config, and moves in the tree by keyboard.
func TestSources(t *testing.T) {
	b := chromium.Start(t)
	n := newNode(t, fromQuickstart)
	p := b.Page(t)
	p.Open(open(t, p, n) + "#/proxy?mesh=default&name=web&tab=config&q=connectTimeout")
	p.Until(`document.querySelector("main").textContent.includes("the arrow at a line names them")`)
	p.Eval(`document.querySelector(".hits button").click()`, nil)
	p.Until(`document.activeElement.textContent.includes("MeshTimeout/default/backend-timeouts")`)
	p.Until(`document.activeElement.textContent.includes("spec.to[0].default.connectionTimeout")`)
	p.Press("ArrowLeft")
	p.Until(`document.activeElement.dataset.id.endsWith("/backend")`)
	p.Press("ArrowLeft")
	p.Until(`document.activeElement.getAttribute("aria-expanded") === "false"`)
	p.Press("Home")
	p.Until(`document.activeElement.dataset.id.endsWith("Cluster")`)
}

// TestYAML checks the texts that the page makes of resources, and its edits of texts.
func TestYAML(t *testing.T) {
	b := chromium.Start(t)
	n := newNode(t, fromQuickstart)
	p := b.Page(t)
	p.Open(open(t, p, n) + "#/change")
	p.Until(`document.querySelector("` + editor + `")`)
	const hostile = `{"a": ["yes", "", "1e3", "0x1f", "2s", "2026-11-29", "- x", "a: b", "#", " x", "x ", "\u202e<b>", "null", "10.0.0.1", "1.5",
		"a\nb", "a\nb\n", "a\n\n", "\ta", "\u0085", "\ufeff", "~", "a\tb\nc"], "b": {"on": {}, "1": [], "k: k": null, "t": "a\nb\n\n", "u": " a\nb", "v": "x\ny"},
		"c": [[1, -2.5, true], [{"x": [{"y": "z", "w": {}}]}]], "d": "\"'"}`
	var text string
	p.Eval(`import("./parts/yaml.js").then(m => m.toYAML(`+hostile+`))`, &text)
	var got, want any
	agenttest.Do(t, yaml.Unmarshal([]byte(text), &got))
	agenttest.Do(t, json.Unmarshal([]byte(hostile), &want))
	wanted, err := json.Marshal(want)
	agenttest.Do(t, err)
	read, err := json.Marshal(got)
	agenttest.Do(t, err)
	if diff := cmp.Diff(string(wanted), string(read)); diff != "" {
		t.Errorf("%s\n%s", diff, text)
	}
	for text, want := range map[string]string{
		"type: X\nspec:\n  to:\n  - ":                                         "X spec/to/[] null",
		"type: X\nspec:\n  to:\n  - targetRef:\n      kind: M":                "X spec/to/[]/targetRef kind",
		"type: X\nspec:\n  to:\n    - targetRef: {}\n      de":                "X spec/to/[] null",
		"type: X\nspec:\n  to: [{targetRef: {kind: Mesh}, default: {a: b, ht": "X spec/to/[]/default null",
		"type: X\n---\ntype: Y\nspec:\n  x":                                   "Y spec null",
	} {
		var got string
		p.Eval(`import("./parts/completion.js").then(m => {
			const {type, path, key} = m.place(`+strconv.Quote(text)+`, `+strconv.Itoa(len(text))+`);
			return type + " " + path.join("/") + " " + key;
		})`, &got)
		if got != want {
			t.Errorf("the end of %q is at %s, want %s", text, got, want)
		}
	}
	for _, c := range []struct{ before, shadow string }{
		{"type: MeshTimeout\nname: a\nspec: {}\n",
			"type: MeshTimeout\nname: a\nlabels:\n  kuma.io/effect: shadow\nspec: {}\n"},
		{"type: MeshTimeout\nname: a", "type: MeshTimeout\nname: a\nlabels:\n  kuma.io/effect: shadow\n"},
		{"type: MeshTimeout\nname: a\nlabels: {x: y}\n",
			"type: MeshTimeout\nname: a\nlabels: {kuma.io/effect: shadow, x: y}\n"},
		{"type: MeshTimeout\nname: a\nlabels:\n  x: y\nspec: {}\n---\ntype: Mesh\nname: m\n",
			"type: MeshTimeout\nname: a\nlabels:\n  kuma.io/effect: shadow\n  x: y\nspec: {}\n---\ntype: Mesh\nname: m\n"},
	} {
		var on, off string
		edit := func(text string, on bool, out *string) {
			p.Eval(fmt.Sprintf(`import("./parts/documents.js").then(m => m.withShadow(%s, %t, k => k !== "Mesh"))`,
				strconv.Quote(text), on), out)
		}
		edit(c.before, true, &on)
		edit(on, false, &off)
		if on != c.shadow || strings.TrimSpace(off) != strings.TrimSpace(c.before) {
			t.Errorf("%q: with the label %q, and without it again %q", c.before, on, off)
		}
	}
}
