// Package manifest injects sidecars into the text of Kubernetes manifests. It inserts text, and all
// bytes of the input stay. Other objects pass through unchanged.
//
// The result is complete or an error: with a fault in one document, no text is returned.
package manifest

import (
	"cmp"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/answer/inject"
	"github.com/nearside-mesh/nearside/agent/base/strict"
	"github.com/nearside-mesh/nearside/agent/base/yamltext"
)

// Text is a stream of manifests.
type Text struct {
	Name string // for messages
	Data []byte
}

// Outcome is what happened to an object with pods.
type Outcome string

// The outcomes.
const (
	Injected  Outcome = "injected"
	Unchanged Outcome = "already injected"
	Skipped   Outcome = "skipped"
)

// Object is an object with a pod template.
type Object struct {
	File    string
	Line    int
	Name    string // Kind/namespace/name, without an unknown namespace
	Outcome Outcome
	Reason  string // why it is skipped
	Warning bool   // the user should act on the reason
	Notes   []inject.Note
}

// Result has the texts with sidecars, in the order of the input.
type Result struct {
	Texts   []Text
	Objects []Object
	Others  int // objects without pods
}

// Options configures Inject.
type Options struct {
	inject.Options
	// Namespace is the namespace of objects that name none.
	Namespace string
}

// Inject adds sidecars to the pods of all texts. Namespace objects in any of them decide about the
// pods of their namespace. The error is a list of faults.
func Inject(texts []Text, o Options) (*Result, error) {
	r := &Result{}
	files := make([]*yamltext.File, len(texts))
	in := injector{Options: o, namespaces: map[string]inject.Metadata{}, result: r}
	for i, t := range texts {
		f, fault := yamltext.Parse(t.Data)
		if fault != nil {
			in.fail(fault, t, "")
			continue
		}
		files[i] = f
		in.each(f, t, in.prepare)
	}
	for i, t := range texts {
		if files[i] == nil {
			continue
		}
		in.each(files[i], t, in.object)
		out, fault := files[i].Text()
		if fault != nil {
			in.fail(fault, t, "")
		}
		r.Texts = append(r.Texts, Text{Name: t.Name, Data: out})
	}
	if err := in.faults.Err(); err != nil {
		return nil, err
	}
	return r, nil
}

// injector has the state of one call of Inject.
type injector struct {
	Options
	namespaces map[string]inject.Metadata
	result     *Result
	faults     strict.Faults
}

// fail records a fault of an object.
func (in *injector) fail(fault *strict.Fault, t Text, object string) {
	f := *fault
	f.File = t.Name
	if object != "" && f.Field != "" {
		f.Field = object + ": " + f.Field
	} else if object != "" {
		f.Field = object
	}
	if strings.Contains(f.Reason, "not valid YAML") && strings.Contains(string(t.Data), "{{") {
		f.Reason += "; if the file is a template, render it first, such as with helm template"
	}
	in.faults = append(in.faults, f)
}

// each calls use for the objects of a file, with those in lists.
func (in *injector) each(f *yamltext.File, t Text, use func(Text, *yamltext.Node)) {
	for doc := range f.Len() {
		if f.Peek(doc, "kind") == "" {
			continue
		}
		root, fault := f.Root(doc)
		if fault != nil {
			if templated[f.Peek(doc, "kind")] != nil || listed(f.Peek(doc, "kind")) {
				in.fail(fault, t, "")
			}
			continue
		}
		in.eachOf(root, t, use)
	}
}

func (in *injector) eachOf(n *yamltext.Node, t Text, use func(Text, *yamltext.Node)) {
	items := n.Get("items")
	use(t, n)
	if !listed(n.Get("kind").Text()) || items == nil || items.Kind != yamltext.Sequence {
		return
	}
	for _, it := range items.Items {
		in.eachOf(it, t, use)
	}
}

// checkFunction records a fault for the settings of a function (KRM), which are flags of the
// command.
func (in *injector) checkFunction(config *yamltext.Node, t Text) {
	if config == nil {
		return
	}
	for _, k := range config.Keys {
		if !slices.Contains([]string{"apiVersion", "kind", "metadata"}, k.Name) {
			in.fail(&strict.Fault{Line: k.Value.Line, Field: "functionConfig." + k.Name,
				Reason: "is not read: pass flags in args of the exec function"}, t, "")
		}
	}
}

// listed reports whether a kind is a list of objects: List, DeploymentList, or the ResourceList of
// functions.
func listed(kind string) bool { return strings.HasSuffix(kind, "List") }

// templated has the paths of the pod templates of kinds, and the groups of the kinds.
var templated = map[string]*struct{ groups, path []string }{
	"Deployment":            {[]string{"apps", "extensions"}, []string{"spec", "template"}},
	"StatefulSet":           {[]string{"apps"}, []string{"spec", "template"}},
	"DaemonSet":             {[]string{"apps", "extensions"}, []string{"spec", "template"}},
	"ReplicaSet":            {[]string{"apps", "extensions"}, []string{"spec", "template"}},
	"ReplicationController": {[]string{""}, []string{"spec", "template"}},
	"Job":                   {[]string{"batch"}, []string{"spec", "template"}},
	"CronJob":               {[]string{"batch"}, []string{"spec", "jobTemplate", "spec", "template"}},
	"Pod":                   {[]string{""}, nil},
}

// group returns the API group of an object.
func group(n *yamltext.Node) string {
	g, _, ok := strings.Cut(n.Get("apiVersion").Text(), "/")
	if !ok {
		return ""
	}
	return g
}

// prepare records the labels and annotations of a Namespace object, and checks the settings of a
// function.
func (in *injector) prepare(t Text, n *yamltext.Node) {
	if n.Get("kind").Text() == "ResourceList" {
		in.checkFunction(n.Get("functionConfig"), t)
	}
	if n.Get("kind").Text() != "Namespace" || group(n) != "" {
		return
	}
	meta := n.Get("metadata")
	in.namespaces[meta.Get("name").Text()] = inject.Metadata{Labels: stringsOf(meta.Get("labels")),
		Annotations: stringsOf(meta.Get("annotations"))}
}

func stringsOf(n *yamltext.Node) map[string]string {
	if n == nil {
		return nil
	}
	out := make(map[string]string, len(n.Keys))
	for _, k := range n.Keys {
		out[k.Name] = k.Value.Value
	}
	return out
}

// nameOf returns the namespace of an object, and its name for messages.
func (in *injector) nameOf(n *yamltext.Node) (namespace, shown string) {
	meta := n.Get("metadata")
	namespace = cmp.Or(meta.Get("namespace").Text(), in.Namespace)
	shown = n.Get("kind").Text() + "/"
	if namespace != "" {
		shown += namespace + "/"
	}
	return namespace, shown + strict.Short(cmp.Or(meta.Get("name").Text(), meta.Get("generateName").Text(), "(no name)"))
}
