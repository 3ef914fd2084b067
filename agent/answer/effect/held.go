package effect

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/nearside-mesh/nearside/agent/base/jsonpatch"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/model/api"
)

// given says how much of a change an Envoy was given.
type given struct {
	has, lacks bool
	unsure     bool // some parts cannot be compared
}

func (g *given) add(o given) {
	g.has, g.lacks, g.unsure = g.has || o.has, g.lacks || o.lacks, g.unsure || o.unsure
}

// look reads what the Envoy of a proxy was given.
func (x *Examiner) look(p *proxy) {
	id := x.id(p.dataplane.Name)
	if x.options.Published != nil {
		p.published = x.options.Published(id)
	}
	if p.published == nil {
		return
	}
	if x.options.Held != nil {
		p.held = x.options.Held(id)
	}
	p.stale = x.Stale(p.dataplane.Name)
	if x.build(p); p.config != nil && len(p.held) == 0 && len(changed(p.config, p.published)) == 0 {
		p.published = nil
	}
}

// Stale says why the Envoy of a dataplane keeps an older config; "" if it does not.
func (x *Examiner) Stale(dataplane string) string {
	if x.options.Stale == nil {
		return ""
	}
	return x.options.Stale(x.id(dataplane))
}

// rejection returns why the Envoy has another form of a resource than the published one, or nil.
func (p *proxy) rejection(id draft.ResourceID) *draft.Rejection {
	i := slices.IndexFunc(p.held, func(r draft.Rejection) bool { return r.ID == id })
	if i < 0 {
		return nil
	}
	return &p.held[i]
}

// has returns the form of a resource that the Envoy has, or nil.
func (p *proxy) has(id draft.ResourceID) *draft.Resource {
	if r := p.rejection(id); r != nil && !r.Substituted() &&
		(r.Accepted != nil || r.By == api.HeldByProxy) {
		return r.Accepted
	}
	return p.published.Resource(id)
}

// hold lowers the effect of a policy on a proxy if its Envoy lacks some of what the policy changes.
// The configs with and without the policy may contain only some outbounds.
func (p *proxy) hold(v *Verdict, with, without *generate.Proxy) {
	var sum given
	var lacking []draft.ResourceID
	for _, id := range v.Changed {
		g := p.given(id, with.Resource(id), without.Resource(id))
		if sum.add(g); g.lacks || g.unsure {
			lacking = append(lacking, id)
		}
	}
	switch {
	case len(lacking) == 0:
		return
	case sum.has:
		v.Effect = api.EffectPart
	case sum.lacks && !sum.unsure:
		v.Effect = api.EffectNone
	default:
		v.Effect = api.EffectUnknown
	}
	if p.stale != "" {
		v.Held = "the Envoy keeps an older config: " + p.stale
		return
	}
	name := lacking[0].Name
	switch r := p.rejection(lacking[0]); {
	case r == nil:
		v.Held = "the Envoy has another form of " + name
	case r.By == api.HeldByProxy:
		v.Held = fmt.Sprintf("the Envoy rejected %s: %s", name, r.Reason)
	default:
		v.Held = fmt.Sprintf("%s is withheld: %s", name, r.Reason)
	}
	if r := p.rejection(lacking[0]); r != nil && r.Substituted() {
		v.Held += "; the Envoy gets " + api.OmittedText(r.Without)
	}
	if n := len(lacking) - 1; n > 0 {
		v.Held += fmt.Sprintf(" (and %d more resources)", n)
	}
}

// given compares the forms of a resource with and without a policy with that of the Envoy.
func (p *proxy) given(id draft.ResourceID, with, without *draft.Resource) given {
	has := p.has(id)
	switch {
	case sameForm(p.config.Resource(id), has):
		return given{has: true}
	case sameForm(without, has), with == nil, without == nil, has == nil:
		return given{lacks: true}
	}
	r, err := generate.NewRenderer(nil)
	if err != nil {
		return given{unsure: true}
	}
	var forms [3]any
	for i, form := range [...]*draft.Resource{with, without, has} {
		text, err := r.Render(draft.Rank(id.TypeURL), form)
		if err == nil {
			err = json.Unmarshal(text, &forms[i])
		}
		if err != nil {
			return given{unsure: true}
		}
	}
	return compareForms(forms[0], forms[1], forms[2])
}

func sameForm(a, b *draft.Resource) bool {
	return a == b || a != nil && b != nil && a.Version == b.Version
}

// compareForms compares the parts of a resource that differ with and without a policy with those
// that the Envoy has.
func compareForms(with, without, has any) (out given) {
	switch {
	case jsonpatch.Equal(with, without):
		return given{}
	case jsonpatch.Equal(with, has):
		return given{has: true}
	case jsonpatch.Equal(without, has):
		return given{lacks: true}
	}
	a, b, c := partsOf(with), partsOf(without), partsOf(has)
	if a == nil || b == nil || c == nil {
		_, list := has.([]any)
		return given{lacks: !list, unsure: list}
	}
	for k := range a {
		out.add(compareForms(a[k], b[k], c[k]))
	}
	for k := range b {
		if _, ok := a[k]; !ok {
			out.add(compareForms(nil, b[k], c[k]))
		}
	}
	return out
}

// partsOf returns the members of an object, or the elements of a list by their names; nil for other
// values.
func partsOf(v any) map[string]any {
	if object, ok := v.(map[string]any); ok {
		return object
	}
	list, ok := v.([]any)
	if !ok {
		return nil
	}
	out := map[string]any{}
	for i, e := range list {
		name := fmt.Sprintf("%d of %d", i, len(list)) // lists of other lengths have other keys
		if object, ok := e.(map[string]any); ok {
			if s, ok := object["name"].(string); ok {
				name = s
			}
		}
		if _, ok := out[name]; ok {
			return nil
		}
		out[name] = e
	}
	return out
}
