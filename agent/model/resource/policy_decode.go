package resource

import (
	"reflect"
	"slices"
)

// PolicyDescriptor declares a targetRef policy kind.
func PolicyDescriptor(kind, plural, short string, shape PolicyShape) Descriptor {
	return Descriptor{
		Kind: kind, Plural: plural, Short: short, Scope: ScopeMesh, Policy: true,
		New: func() Spec { return &Policy{Shape: &shape} },
	}
}

// LegacyDescriptor declares a source-destination policy kind (legacy).
func LegacyDescriptor(kind, plural, short string, shape LegacyShape) Descriptor {
	return Descriptor{
		Kind: kind, Plural: plural, Short: short, Scope: ScopeMesh, Policy: true, Legacy: true, SpecAtTop: true,
		New: func() Spec { return &LegacyPolicy{Shape: &shape} },
	}
}

// fields decodes the fields of a mapping that are given. Those that are refused belong to other
// kinds.
func (d *decoder) fields(n *node, known, refused []string, decode func(f *pair)) {
	if !d.is(n, nodeMapping, "a mapping") {
		return
	}
	for i := range n.pairs {
		f := &n.pairs[i]
		switch isKnown := slices.Contains(known, f.key); {
		case isKnown && f.value.kind == nodeNull:
			d.field(f.key)
			d.null(f.line)
			d.pop()
		case isKnown, slices.Contains(refused, f.key):
			d.field(f.key)
			if isKnown {
				decode(f)
			} else {
				d.faultf(f.line, "this kind has no %s; remove it", f.key)
			}
			d.pop()
		default:
			d.unknown(f, known)
		}
	}
}

// decodeNode reads targetRef, from, rules, to and default; the conf of a kind is decoded into what
// its shape makes.
func (p *Policy) decodeNode(d *decoder, n *node) {
	if p.Shape == nil {
		p.Shape = &PolicyShape{}
	}
	known := []string{"targetRef"}
	if len(p.Shape.From) > 0 {
		known = append(known, "from")
	}
	if p.Shape.Rules {
		known = append(known, "rules")
	}
	if len(p.Shape.To) > 0 {
		known = append(known, "to")
	}
	if p.Shape.Default {
		known = append(known, "default")
	}
	d.fields(n, known, []string{"from", "rules", "to", "default"}, func(f *pair) {
		switch f.key {
		case "targetRef":
			p.TargetRef = new(TargetRef)
			d.value(f.value, reflect.ValueOf(p.TargetRef).Elem())
		case "from":
			p.From = p.items(d, f.value)
		case "rules":
			p.Rules = p.rules(d, f.value)
		case "to":
			p.To = p.items(d, f.value)
		case "default":
			p.Default = p.conf(d, f.value)
		}
	})
}

func (p *Policy) items(d *decoder, n *node) []PolicyItem {
	if !d.is(n, nodeList, "a list") {
		return nil
	}
	if len(n.items) == 0 {
		return nil
	}
	out := make([]PolicyItem, len(n.items))
	for i, it := range n.items {
		d.index(i)
		p.item(d, it, &out[i])
		d.pop()
	}
	return out
}

// item reads one entry of from or to. An item without default has an empty conf; whether that is
// enough is for the conf's own validation to say.
func (p *Policy) item(d *decoder, n *node, out *PolicyItem) {
	conf, ref, known := &node{kind: nodeMapping, line: n.line}, *n, []string{"targetRef", "default"}
	if p.Shape.Inline && n.kind == nodeMapping {
		rest, isRef := *n, func(f pair) bool { return f.key == "targetRef" }
		rest.pairs = slices.DeleteFunc(slices.Clone(n.pairs), isRef)
		ref.pairs = slices.DeleteFunc(slices.Clone(n.pairs), func(f pair) bool { return !isRef(f) })
		conf = &rest
	}
	d.fields(&ref, known, nil, func(f *pair) {
		if f.key == "targetRef" {
			d.value(f.value, reflect.ValueOf(&out.TargetRef).Elem())
		} else {
			out.Conf = p.conf(d, f.value)
		}
	})
	if out.Conf == nil && n.kind == nodeMapping {
		out.Conf = p.conf(d, conf)
	}
}

// rules reads entries of rules: matches and default.
func (p *Policy) rules(d *decoder, n *node) []PolicyItem {
	if !d.is(n, nodeList, "a list") || len(n.items) == 0 {
		return nil
	}
	newConf := p.Shape.NewRuleConf
	if newConf == nil {
		newConf = p.Shape.NewConf
	}
	out := make([]PolicyItem, len(n.items))
	for i, it := range n.items {
		d.index(i)
		out[i].TargetRef.Kind = "Mesh"
		d.fields(it, []string{"matches", "default"}, nil, func(f *pair) {
			if f.key == "matches" {
				d.value(f.value, reflect.ValueOf(&out[i].Matches).Elem())
			} else {
				out[i].Conf = decodeConf(d, f.value, newConf())
			}
		})
		if out[i].Conf == nil && it.kind == nodeMapping {
			out[i].Conf = decodeConf(d, &node{kind: nodeMapping, line: it.line}, newConf())
		}
		d.pop()
	}
	return out
}

func (p *Policy) conf(d *decoder, n *node) Conf {
	if p.Shape.NewConf == nil {
		return decodeConf(d, n, new(RawConf))
	}
	return decodeConf(d, n, p.Shape.NewConf())
}

func decodeConf(d *decoder, n *node, c Conf) Conf {
	v := reflect.ValueOf(c)
	if v.Kind() != reflect.Pointer || v.IsNil() {
		d.faultf(n.line, "cannot be decoded: %T is not a pointer to a conf", c)
		return c
	}
	d.value(n, v.Elem())
	return c
}

// MarshalJSON writes the policy in canonical order.
func (p *Policy) MarshalJSON() ([]byte, error) {
	inline := p.Shape != nil && p.Shape.Inline
	items := func(list []PolicyItem) []itemJSON {
		out := make([]itemJSON, len(list))
		for i := range list {
			out[i] = itemJSON{&list[i], inline}
		}
		return out
	}
	return marshalValue(struct {
		TargetRef *TargetRef `json:"targetRef,omitempty"`
		From      []itemJSON `json:"from,omitempty"`
		Rules     []ruleJSON `json:"rules,omitempty"`
		To        []itemJSON `json:"to,omitempty"`
		Default   Conf       `json:"default,omitempty"`
	}{p.TargetRef, items(p.From), rulesJSON(p.Rules), items(p.To), p.Default})
}

// ruleJSON writes an entry of rules.
type ruleJSON struct {
	Matches []ClientMatch `json:"matches,omitempty"`
	Conf    Conf          `json:"default,omitempty"`
}

func rulesJSON(list []PolicyItem) []ruleJSON {
	out := make([]ruleJSON, len(list))
	for i := range list {
		out[i] = ruleJSON{list[i].Matches, list[i].Conf}
	}
	return out
}

// itemJSON writes an item of from or to.
type itemJSON struct {
	*PolicyItem
	inline bool
}

func (i itemJSON) MarshalJSON() ([]byte, error) {
	item := struct {
		TargetRef *TargetRef `json:"targetRef"`
		Conf      Conf       `json:"default,omitempty"`
	}{&i.TargetRef, i.Conf}
	if !i.inline || i.Conf == nil {
		return marshalValue(item)
	}
	conf, err := marshalValue(i.Conf)
	if err != nil {
		return nil, err
	}
	item.Conf = nil
	b, err := marshalValue(item)
	if err != nil {
		return nil, err
	}
	return append(appendFields(b[:len(b)-1], conf), '}'), nil
}

// decodeNode reads the selectors and the conf.
func (p *LegacyPolicy) decodeNode(d *decoder, n *node) {
	if p.Shape == nil {
		p.Shape = &LegacyShape{}
	}
	lists := map[string]*[]LegacySelector{"sources": &p.Sources, "destinations": &p.Destinations,
		"selectors": &p.Selectors}
	known := []string{"sources", "destinations"}
	if p.Shape.Selectors {
		known = []string{"selectors"}
	}
	if p.Shape.NewConf != nil {
		known = append(known, "conf")
	}
	d.fields(n, known, nil, func(f *pair) {
		if f.key == "conf" {
			p.Conf = decodeConf(d, f.value, p.Shape.NewConf())
		} else {
			d.value(f.value, reflect.ValueOf(lists[f.key]).Elem())
		}
	})
}
