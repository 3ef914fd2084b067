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

// decodeNode reads targetRef, from, to and default; the conf of a kind is decoded into what its shape makes.
func (p *Policy) decodeNode(d *decoder, n *node) {
	if n.kind != nodeMapping {
		d.wrongType(n, "a mapping")
		return
	}
	if p.Shape == nil {
		p.Shape = &PolicyShape{}
	}
	known := []string{"targetRef"}
	if len(p.Shape.From) > 0 {
		known = append(known, "from")
	}
	if len(p.Shape.To) > 0 {
		known = append(known, "to")
	}
	if p.Shape.Default {
		known = append(known, "default")
	}
	for i := range n.pairs {
		f := &n.pairs[i]
		if f.value.kind == nodeNull && slices.Contains(known, f.key) {
			continue
		}
		d.field(f.key)
		switch {
		case f.key == "targetRef":
			p.TargetRef = new(TargetRef)
			d.value(f.value, reflect.ValueOf(p.TargetRef).Elem())
		case f.key == "from" && len(p.Shape.From) > 0:
			p.From = p.items(d, f.value)
		case f.key == "to" && len(p.Shape.To) > 0:
			p.To = p.items(d, f.value)
		case f.key == "default" && p.Shape.Default:
			p.Default = p.conf(d, f.value)
		case f.key == "from" || f.key == "to" || f.key == "default":
			d.faultf(f.line, "this kind has no %s; remove it", f.key)
		default:
			d.pop()
			d.unknown(f, known)
			continue
		}
		d.pop()
	}
}

func (p *Policy) items(d *decoder, n *node) []PolicyItem {
	if n.kind != nodeList {
		d.wrongType(n, "a list")
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

// item reads one entry of from or to. An item without default has an empty conf; whether that is enough is for the
// conf's own validation to say.
func (p *Policy) item(d *decoder, n *node, out *PolicyItem) {
	if n.kind != nodeMapping {
		d.wrongType(n, "a mapping")
		return
	}
	rest := *n
	rest.pairs = nil
	for i := range n.pairs {
		f := &n.pairs[i]
		switch {
		case f.key == "targetRef":
			d.field(f.key)
			d.value(f.value, reflect.ValueOf(&out.TargetRef).Elem())
			d.pop()
		case p.Shape.Inline:
			rest.pairs = append(rest.pairs, *f)
		case f.key == "default" && f.value.kind != nodeNull:
			d.field(f.key)
			out.Conf = p.conf(d, f.value)
			d.pop()
		case f.key != "default":
			d.unknown(f, []string{"targetRef", "default"})
		}
	}
	if p.Shape.Inline {
		out.Conf = p.conf(d, &rest)
	} else if out.Conf == nil {
		out.Conf = p.conf(d, &node{kind: nodeMapping, line: n.line})
	}
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
	o := object{}
	if p.TargetRef != nil {
		o.add("targetRef", p.TargetRef)
	}
	for _, list := range []struct {
		name  string
		items []PolicyItem
	}{{"from", p.From}, {"to", p.To}} {
		if len(list.items) == 0 {
			continue
		}
		out := make([]rawObject, len(list.items))
		for i := range list.items {
			io := object{}
			io.add("targetRef", &list.items[i].TargetRef)
			switch c := list.items[i].Conf; {
			case c == nil:
			case inline:
				io.splice(c)
			default:
				io.add("default", c)
			}
			out[i] = rawObject{io.bytes()}
			if io.err != nil {
				return nil, io.err
			}
		}
		o.add(list.name, out)
	}
	if p.Default != nil {
		o.add("default", p.Default)
	}
	return o.bytes(), o.err
}

// decodeNode reads the selectors and the conf.
func (p *LegacyPolicy) decodeNode(d *decoder, n *node) {
	if n.kind != nodeMapping {
		d.wrongType(n, "a mapping")
		return
	}
	if p.Shape == nil {
		p.Shape = &LegacyShape{}
	}
	known := []string{"sources", "destinations"}
	if p.Shape.Selectors {
		known = []string{"selectors"}
	}
	if p.Shape.NewConf != nil {
		known = append(known, "conf")
	}
	for i := range n.pairs {
		f := &n.pairs[i]
		if !slices.Contains(known, f.key) {
			d.unknown(f, known)
			continue
		}
		if f.value.kind == nodeNull {
			continue
		}
		d.field(f.key)
		switch f.key {
		case "sources":
			d.value(f.value, reflect.ValueOf(&p.Sources).Elem())
		case "destinations":
			d.value(f.value, reflect.ValueOf(&p.Destinations).Elem())
		case "selectors":
			d.value(f.value, reflect.ValueOf(&p.Selectors).Elem())
		case "conf":
			p.Conf = decodeConf(d, f.value, p.Shape.NewConf())
		}
		d.pop()
	}
}

// MarshalJSON writes the policy in canonical order.
func (p *LegacyPolicy) MarshalJSON() ([]byte, error) {
	o := object{}
	if len(p.Sources) > 0 {
		o.add("sources", p.Sources)
	}
	if len(p.Destinations) > 0 {
		o.add("destinations", p.Destinations)
	}
	if len(p.Selectors) > 0 {
		o.add("selectors", p.Selectors)
	}
	if p.Conf != nil {
		o.add("conf", p.Conf)
	}
	return o.bytes(), o.err
}

// object writes a JSON object field by field.
type object struct {
	buf []byte
	err error
}

// rawObject is JSON that is ready.
type rawObject struct{ json []byte }

func (r rawObject) MarshalJSON() ([]byte, error) { return r.json, nil }

func (o *object) add(name string, v any) {
	b, err := marshalValue(v)
	if err != nil {
		o.err = err
		return
	}
	o.comma()
	o.buf = append(appendString(o.buf, name), ':')
	o.buf = append(o.buf, b...)
}

// splice adds the fields of a value that is an object itself.
func (o *object) splice(v any) {
	b, err := marshalValue(v)
	if err != nil {
		o.err = err
		return
	}
	if len(b) > len("{}") {
		o.comma()
		o.buf = append(o.buf, b[1:len(b)-1]...)
	}
}

func (o *object) comma() {
	if len(o.buf) > 0 {
		o.buf = append(o.buf, ',')
	}
}

func (o *object) bytes() []byte {
	return append(append([]byte{'{'}, o.buf...), '}')
}
