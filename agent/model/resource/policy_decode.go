package resource

import (
	"slices"

	"github.com/nearside-mesh/nearside/agent/base/strict"
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

// DecodeNode decodes targetRef, from, rules, to, and default. It decodes confs into the types of
// the kind's shape.
func (p *Policy) DecodeNode(d *strict.Decoder, n *strict.Node) {
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
	d.Fields(n, known, []string{"from", "rules", "to", "default"}, func(f *strict.Pair) {
		switch f.Key {
		case "targetRef":
			p.TargetRef = new(TargetRef)
			d.Decode(f.Value, p.TargetRef)
		case "from":
			p.From = p.items(d, f.Value)
		case "rules":
			p.Rules = p.rules(d, f.Value)
		case "to":
			p.To = p.items(d, f.Value)
		case "default":
			p.Default = p.conf(d, f.Value)
		}
	})
}

func (p *Policy) items(d *strict.Decoder, n *strict.Node) []PolicyItem {
	if !d.Is(n, strict.List, "a list") {
		return nil
	}
	if len(n.Items) == 0 {
		return nil
	}
	out := make([]PolicyItem, len(n.Items))
	for i, it := range n.Items {
		d.EnterItem(i)
		p.item(d, it, &out[i])
		d.Leave()
	}
	return out
}

// item decodes one entry of from or to. An item without default has an empty conf, which its own
// validation may reject.
func (p *Policy) item(d *strict.Decoder, n *strict.Node, out *PolicyItem) {
	conf, ref, known := &strict.Node{Kind: strict.Mapping, Line: n.Line}, *n, []string{"targetRef", "default"}
	if p.Shape.Inline && n.Kind == strict.Mapping {
		rest, isRef := *n, func(f strict.Pair) bool { return f.Key == "targetRef" }
		rest.Pairs = slices.DeleteFunc(slices.Clone(n.Pairs), isRef)
		ref.Pairs = slices.DeleteFunc(slices.Clone(n.Pairs), func(f strict.Pair) bool { return !isRef(f) })
		conf = &rest
	}
	d.Fields(&ref, known, nil, func(f *strict.Pair) {
		if f.Key == "targetRef" {
			d.Decode(f.Value, &out.TargetRef)
		} else {
			out.Conf = p.conf(d, f.Value)
		}
	})
	if out.Conf == nil && n.Kind == strict.Mapping {
		out.Conf = p.conf(d, conf)
	}
}

// rules decodes the entries of rules: matches and default.
func (p *Policy) rules(d *strict.Decoder, n *strict.Node) []PolicyItem {
	if !d.Is(n, strict.List, "a list") || len(n.Items) == 0 {
		return nil
	}
	newConf := p.Shape.NewRuleConf
	if newConf == nil {
		newConf = p.Shape.NewConf
	}
	out := make([]PolicyItem, len(n.Items))
	for i, it := range n.Items {
		d.EnterItem(i)
		out[i].TargetRef.Kind = "Mesh"
		d.Fields(it, []string{"matches", "default"}, nil, func(f *strict.Pair) {
			if f.Key == "matches" {
				d.Decode(f.Value, &out[i].Matches)
			} else {
				out[i].Conf = decodeConf(d, f.Value, newConf())
			}
		})
		if out[i].Conf == nil && it.Kind == strict.Mapping {
			out[i].Conf = decodeConf(d, &strict.Node{Kind: strict.Mapping, Line: it.Line}, newConf())
		}
		d.Leave()
	}
	return out
}

func (p *Policy) conf(d *strict.Decoder, n *strict.Node) Conf {
	if p.Shape.NewConf == nil {
		return decodeConf(d, n, new(RawConf))
	}
	return decodeConf(d, n, p.Shape.NewConf())
}

func decodeConf(d *strict.Decoder, n *strict.Node, c Conf) Conf {
	d.Decode(n, c)
	return c
}

// MarshalJSON returns the policy in canonical order.
func (p *Policy) MarshalJSON() ([]byte, error) {
	inline := p.Shape != nil && p.Shape.Inline
	items := func(list []PolicyItem) []itemJSON {
		out := make([]itemJSON, len(list))
		for i := range list {
			out[i] = itemJSON{&list[i], inline}
		}
		return out
	}
	return strict.MarshalJSON(struct {
		TargetRef *TargetRef `json:"targetRef,omitempty"`
		From      []itemJSON `json:"from,omitempty"`
		Rules     []ruleJSON `json:"rules,omitempty"`
		To        []itemJSON `json:"to,omitempty"`
		Default   Conf       `json:"default,omitempty"`
	}{p.TargetRef, items(p.From), rulesJSON(p.Rules), items(p.To), p.Default})
}

// ruleJSON marshals an entry of rules.
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

// itemJSON marshals an item of from or to.
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
		return strict.MarshalJSON(item)
	}
	conf, err := strict.MarshalJSON(i.Conf)
	if err != nil {
		return nil, err
	}
	item.Conf = nil
	b, err := strict.MarshalJSON(item)
	if err != nil {
		return nil, err
	}
	return append(appendFields(b[:len(b)-1], conf), '}'), nil
}

// DecodeNode decodes the selectors and the conf.
func (p *LegacyPolicy) DecodeNode(d *strict.Decoder, n *strict.Node) {
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
	d.Fields(n, known, nil, func(f *strict.Pair) {
		if f.Key == "conf" {
			p.Conf = decodeConf(d, f.Value, p.Shape.NewConf())
		} else {
			d.Decode(f.Value, lists[f.Key])
		}
	})
}
