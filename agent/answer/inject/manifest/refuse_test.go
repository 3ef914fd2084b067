package manifest_test

import (
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/answer/inject"
	"github.com/nearside-mesh/nearside/agent/answer/inject/manifest"
)

const pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n  - name: p\n    image: p\n"

// TestRefused checks that a fault in any text returns no text, and names line, field, and remedy.
func TestRefused(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"broken":    {"a: 1\n b: 2\n", "in:2: not valid YAML"},
		"template":  {"a: {{ .Values.x }}\nb: c: d\n", "render it first, such as with helm template"},
		"tab":       {"a:\n\tb: 1\n", "in:2: not valid YAML: found character that cannot start any token; indent"},
		"Kuma":      {pod + "  - name: kuma-sidecar\n", "inject the manifest that Kuma has not changed"},
		"value":     {pod + "  hostNetwork: maybe\n", "Pod/p: spec.hostNetwork: a string is not allowed here"},
		"duplicate": {pod + "metadata: {}\n", `in:8: Pod/p: the key "metadata" is given twice: remove one of them`},
		"number": {strings.Replace(pod, "{name: p}", "{name: p, annotations: {x/y: 5}}", 1),
			`in:3: Pod/p: metadata.annotations["x/y"]: 5 is not a string: write it in quotes`},
		"choice": {strings.Replace(pod, "{name: p}", "{name: p, labels: {kuma.io/sidecar-injection: maybe}}", 1),
			`"maybe" must be enabled, disabled, true, or false`},
		"no containers": {"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec: {template: {spec: {}}}\n",
			"in:4: Deployment/d: spec.template.spec.containers: is missing"},
		"null annotations": {strings.Replace(pod, "{name: p}", "{name: p, annotations: null}", 1),
			"this value is null, and must be a mapping: write one, or remove the key"},
		"shared template": {"apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Pod\n  metadata: {name: a}\n" +
			"  spec: &s\n    containers:\n    - name: a\n- apiVersion: v1\n  kind: Pod\n  metadata: {name: b}\n  spec: *s\n",
			"comes from the alias *s"},
		"function config": {"kind: ResourceList\nfunctionConfig: {spec: {mesh: m}}\nitems: []\n",
			"in:2: functionConfig.spec: is not read: pass flags in args of the exec function"},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := manifest.Inject([]manifest.Text{{Name: "good", Data: []byte(pod)}, {Name: "in", Data: []byte(c.text)}},
				manifest.Options{})
			if err == nil || r != nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}

// TestSelection checks decisions by options.
func TestSelection(t *testing.T) {
	namespace := func(meta string) string {
		return "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, " + meta + "}\n"
	}
	label := func(value string) string {
		return strings.Replace(pod, "{name: p}", "{name: p, labels: {kuma.io/sidecar-injection: '"+value+"'}}", 1)
	}
	enabledOnly := manifest.Options{Options: inject.Options{EnabledOnly: true}, Namespace: "shop"}
	shop := manifest.Options{Namespace: "shop"}
	for name, c := range map[string]struct {
		texts []string
		o     manifest.Options
		want  manifest.Outcome
	}{
		"default":                 {[]string{pod}, manifest.Options{}, manifest.Injected},
		"enabled only, unlabeled": {[]string{pod}, enabledOnly, manifest.Skipped},
		"enabled only, pod":       {[]string{label("true")}, enabledOnly, manifest.Injected},
		"enabled only, later Namespace": {[]string{
			pod, namespace("labels: {kuma.io/sidecar-injection: enabled}")},
			enabledOnly, manifest.Injected},
		"disabled Namespace": {[]string{
			namespace("labels: {kuma.io/sidecar-injection: disabled}"), pod},
			shop, manifest.Skipped},
		"Namespace of others": {[]string{
			namespace("labels: {kuma.io/sidecar-injection: disabled}"), pod},
			manifest.Options{}, manifest.Injected},
		"pod over Namespace": {[]string{
			namespace("annotations: {kuma.io/sidecar-injection: disabled}"), label("enabled")},
			shop, manifest.Injected},
		"label over annotation": {[]string{
			namespace("labels: {kuma.io/sidecar-injection: 'true'}, annotations: {kuma.io/sidecar-injection: 'false'}"), pod},
			shop, manifest.Injected},
		"system namespace": {[]string{pod}, manifest.Options{Namespace: "kube-system"}, manifest.Skipped},
		"system namespace, enabled": {[]string{label("enabled")},
			manifest.Options{Namespace: "kube-system"}, manifest.Injected},
		"another group of the same kind": {[]string{strings.Replace(pod, "v1", "example.org/v1", 1)},
			manifest.Options{}, ""},
		"another kind with a template": {[]string{
			"apiVersion: argoproj.io/v1alpha1\nkind: Rollout\nspec: {template: {spec: {containers: [{name: a}]}}}\n"},
			manifest.Options{}, manifest.Skipped},
		"function, items are in the list": {[]string{
			"kind: ResourceList\nitems:\n- " + strings.ReplaceAll(strings.TrimSpace(pod), "\n", "\n  ") + "\n"},
			manifest.Options{}, manifest.Injected},
	} {
		t.Run(name, func(t *testing.T) {
			var texts []manifest.Text
			for _, s := range c.texts {
				texts = append(texts, manifest.Text{Name: "in", Data: []byte(s)})
			}
			r, err := manifest.Inject(texts, c.o)
			if err != nil {
				t.Fatal(err)
			}
			var got manifest.Outcome
			if len(r.Objects) > 0 {
				got = r.Objects[0].Outcome
			}
			changed := false
			for i, text := range r.Texts {
				changed = changed || string(text.Data) != c.texts[i]
			}
			if got != c.want || changed != (c.want == manifest.Injected) {
				t.Errorf("%q, changed: %v; want %q", got, changed, c.want)
			}
		})
	}
}
