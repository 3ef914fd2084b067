package check

import (
	"google.golang.org/protobuf/reflect/protoreflect"
)

// plans say, by type of message, which rule it has and which of its fields lead to a message with
// one. A config is walked along them, so that what no rule asks about costs nothing.
type plans struct {
	rules map[protoreflect.FullName]ruleFunc
	known map[protoreflect.MessageDescriptor]*plan
	leads map[protoreflect.MessageDescriptor]bool
}

// plan is that of one type.
type plan struct {
	name   protoreflect.FullName
	rule   ruleFunc
	fields []planField
}

// planField is a field that leads to a message with a rule.
type planField struct {
	descriptor protoreflect.FieldDescriptor
	name       string // in JSON
	kind       fieldKind
	of         protoreflect.MessageDescriptor // of the message or of the map's values
	slot       slot
}

type fieldKind uint8

const (
	single fieldKind = iota
	list1
	mapped
)

// Messages that are looked at whatever holds them, and those that never are.
const (
	nameAny      protoreflect.FullName = "google.protobuf.Any"
	nameDuration protoreflect.FullName = "google.protobuf.Duration"
	nameMetadata protoreflect.FullName = "envoy.config.core.v3.Metadata" // for filters and logs, which take any
)

func newPlans() *plans {
	return &plans{rules: messageRules(), known: map[protoreflect.MessageDescriptor]*plan{},
		leads: map[protoreflect.MessageDescriptor]bool{}}
}

// of returns the plan of a type.
func (p *plans) of(d protoreflect.MessageDescriptor) *plan {
	if known := p.known[d]; known != nil {
		return known
	}
	out := &plan{name: d.FullName(), rule: p.rules[d.FullName()]}
	p.known[d] = out
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		of, kind := messageOf(f)
		if of == nil || !p.leadsSomewhere(of) {
			continue
		}
		out.fields = append(out.fields, planField{descriptor: f, name: f.JSONName(), kind: kind, of: of, slot: slotOf(f)})
	}
	return out
}

// messageOf returns the type of the messages in a field, nil for a field of another kind.
func messageOf(f protoreflect.FieldDescriptor) (protoreflect.MessageDescriptor, fieldKind) {
	switch {
	case f.IsMap():
		return f.MapValue().Message(), mapped
	case f.IsList():
		return f.Message(), list1
	}
	return f.Message(), single
}

// leadsSomewhere reports whether a type has a rule or holds a type that does.
func (p *plans) leadsSomewhere(d protoreflect.MessageDescriptor) bool {
	if known, ok := p.leads[d]; ok {
		return known
	}
	// Types hold each other in circles. All that is seen on the way leads nowhere if the first does
	// not; if it does, only what is on the path to a rule is known for sure.
	seen := map[protoreflect.MessageDescriptor]bool{}
	if !p.search(d, seen) {
		for s := range seen {
			p.leads[s] = false
		}
	}
	return p.leads[d]
}

func (p *plans) search(d protoreflect.MessageDescriptor, seen map[protoreflect.MessageDescriptor]bool) bool {
	if known, ok := p.leads[d]; ok {
		return known
	}
	if seen[d] || d.FullName() == nameMetadata {
		return false
	}
	seen[d] = true
	found := p.rules[d.FullName()] != nil || d.FullName() == nameAny || d.FullName() == nameDuration
	for i := 0; i < d.Fields().Len() && !found; i++ {
		of, _ := messageOf(d.Fields().Get(i))
		found = of != nil && p.search(of, seen)
	}
	if found {
		p.leads[d] = true
	}
	return found
}
