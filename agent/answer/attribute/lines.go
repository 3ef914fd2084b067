package attribute

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/jsonpatch"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// MaxLines limits the lines that [Lines] returns.
const MaxLines = 20_000

// Line is a value in a proxy's config that policies determine.
type Line struct {
	draft.ResourceID
	// Path leads to the value, as [jsonpatch.FieldsBetween] writes it; "" is the whole resource.
	Path string
	By   []Source // in the order in which the policies are applied
}

// Source is a policy and the innermost field of it that has the effect; "" for the whole policy.
type Source struct {
	Policy resource.Key
	Field  string
}

// LinesResult is the result of [Lines].
type LinesResult struct {
	Lines []Line // sorted by type, resource, and path
	// Incomplete is true if the limit of work or of lines was reached: sources or fields may be
	// missing.
	Incomplete bool
}

// value is the position of a value in the config of a proxy.
type value struct {
	id   draft.ResourceID
	path string
}

// Lines finds the values of a proxy's config that policies determine: without the policy, the value
// would be different or absent. A value that two policies set equally has no source. Decode reads
// the canonical JSON of a resource. Spent gets the number of generated configs, and reports whether
// the limit of work is reached.
func Lines(m *generate.Mesh, id generate.ProxyID, decode func([]byte) (*resource.Resource, error),
	spent func(trials int) bool) (*LinesResult, error) {
	renderer, err := generate.NewRenderer(rendered{})
	if err != nil {
		return nil, err
	}
	l := lineSearch{Search: Search{ID: id, Memo: generate.NewMemo(), Decode: decode}, mesh: m, renderer: renderer,
		sources: map[value][]Source{}}
	l.Spent = func() bool {
		done := spent(l.Trials)
		l.incomplete = l.incomplete || done
		return done
	}
	if l.now, err = l.In(m); err != nil {
		return nil, err
	}
	l.Prev = l.now
	acting := Acting(m, id, l.Memo)
	l.incomplete = len(acting) > maxPolicies
	for _, p := range acting[max(0, len(acting)-maxPolicies):] {
		if l.Spent() {
			break
		}
		if err := l.policy(p); err != nil {
			return nil, err
		}
	}
	return l.result(), nil
}

// rendered caches the JSON of resources for one search.
type rendered map[generate.RenderKey]json.RawMessage

func (c rendered) Get(k generate.RenderKey) json.RawMessage      { return c[k] }
func (c rendered) Put(k generate.RenderKey, out json.RawMessage) { c[k] = out }

type lineSearch struct {
	Search
	mesh       *generate.Mesh
	now        *generate.Proxy
	renderer   *generate.Renderer
	sources    map[value][]Source
	incomplete bool
}

// policy adds what a policy determines.
func (l *lineSearch) policy(p *resource.Resource) error {
	without, err := l.In(l.mesh.Without(p.Key))
	if err != nil {
		return nil //nolint:nilerr // without the policy there is no valid config, so its lines are unknown
	}
	effect, err := l.effect(without)
	if err != nil || len(effect) == 0 {
		return err
	}
	text, err := resource.Marshal(p)
	if err != nil {
		return err
	}
	doc, err := jsonpatch.Decode(text)
	if err != nil {
		return err
	}
	f := lineFields{lineSearch: l, policy: p, doc: doc, best: map[value]string{}}
	if err := f.down(doc, effect, nil, ""); err != nil {
		return err
	}
	for at := range effect {
		if l.sources[at] == nil && len(l.sources) >= MaxLines {
			l.incomplete = true
			continue
		}
		l.sources[at] = append(l.sources[at], Source{p.Key, strings.TrimPrefix(f.best[at], ".")})
	}
	return nil
}

// effect returns the places where the config differs from another one.
func (l *lineSearch) effect(other *generate.Proxy) (map[value]bool, error) {
	out := map[value]bool{}
	for _, c := range generate.Difference(l.now, other) {
		if c.From == nil {
			continue
		}
		if c.To == nil {
			out[value{c.ResourceID, ""}] = true
			continue
		}
		fields, err := fieldsOf(l.renderer, &c)
		if err != nil {
			return nil, err
		}
		for _, f := range fields {
			out[value{c.ResourceID, f.Path}] = true
		}
	}
	return out, nil
}

func (l *lineSearch) result() *LinesResult {
	out := &LinesResult{Incomplete: l.incomplete, Lines: make([]Line, 0, len(l.sources))}
	for at, by := range l.sources {
		out.Lines = append(out.Lines, Line{at.id, at.path, by})
	}
	slices.SortFunc(out.Lines, func(a, b Line) int {
		return cmp.Or(cmp.Compare(a.TypeURL, b.TypeURL), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Path, b.Path))
	})
	return out
}

// lineFields finds the fields of one policy.
type lineFields struct {
	*lineSearch
	policy *resource.Resource
	doc    any
	best   map[value]string // innermost field, in document syntax
}

// down assigns places of an effect to the children of v that alone have it, and continues within
// these. path is that of v.
func (f *lineFields) down(v any, effect map[value]bool, tokens []string, path string) error {
	object, isObject := v.(map[string]any)
	list, _ := v.([]any)
	var names []string
	for _, name := range slices.Sorted(maps.Keys(object)) {
		if !selects(name, len(tokens)) {
			names = append(names, name)
		}
	}
	for i := range list {
		names = append(names, strconv.Itoa(i))
	}
	lacking := make([]map[value]bool, len(names))
	times := map[value]int{} // children with this place in their effect
	for i, name := range names {
		_, leaf := member(v, name)
		lost, err := f.child(effect, append(slices.Clone(tokens), name), len(names) == 1 && !leaf)
		if err != nil {
			return err
		}
		lacking[i] = lost
		for at := range lost {
			times[at]++
		}
	}
	for i, name := range names {
		maps.DeleteFunc(lacking[i], func(at value, _ bool) bool { return times[at] > 1 })
		if len(lacking[i]) == 0 {
			continue
		}
		var words strings.Builder
		if isObject {
			jsonpatch.WriteKey(&words, name)
		} else {
			words.WriteString("[" + name + "]")
		}
		next, _ := member(v, name)
		for at := range lacking[i] {
			f.best[at] = path + words.String()
		}
		if err := f.down(next, lacking[i], append(slices.Clone(tokens), name), path+words.String()); err != nil {
			return err
		}
	}
	return nil
}

// member returns a member of an object or a list, and whether it contains no others.
func member(v any, name string) (next any, leaf bool) {
	switch v := v.(type) {
	case map[string]any:
		next = v[name]
	case []any:
		if i, err := strconv.Atoi(name); err == nil && i < len(v) {
			next = v[i]
		}
	}
	switch next.(type) {
	case map[string]any, []any:
		return next, false
	}
	return next, true
}

// child returns the part of an effect that disappears without a field. An object or a list that is
// an only child has all of it.
func (f *lineFields) child(effect map[value]bool, tokens []string, only bool) (map[value]bool, error) {
	if only {
		return maps.Clone(effect), nil
	}
	if f.Spent() {
		return nil, nil
	}
	p := f.lacking(f.mesh, f.policy, f.doc, tokens)
	if p == nil {
		return nil, nil
	}
	out, err := f.effect(p)
	maps.DeleteFunc(out, func(at value, _ bool) bool { return !effect[at] })
	return out, err
}
