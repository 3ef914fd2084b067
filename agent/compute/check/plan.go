package check

import (
	"google.golang.org/protobuf/reflect/protoreflect"
)

// plans holds, by message type, its rule and the fields that lead to a message with a rule. A walk
// follows them, so messages without rules cost nothing.
type plans struct {
	rules map[protoreflect.FullName]ruleFunc
	known map[protoreflect.MessageDescriptor]*plan
	leads map[protoreflect.MessageDescriptor]bool
}

// plan lists the rule of a message type and the fields that lead to messages with rules.
type plan struct {
	name   protoreflect.FullName
	rule   ruleFunc
	fields []planField
}

// planField is a field that leads to a message with a rule.
type planField struct {
	descriptor protoreflect.FieldDescriptor
	name       string // JSON name
	kind       fieldKind
	of         protoreflect.MessageDescriptor // type of the message or of the map's values
	slot       slot
}

type fieldKind uint8

const (
	single fieldKind = iota
	list1
	mapped
)

// These messages are checked in every field, except that metadata is never checked.
const (
	nameAny      protoreflect.FullName = "google.protobuf.Any"
	nameDuration protoreflect.FullName = "google.protobuf.Duration"
	nameMetadata protoreflect.FullName = "envoy.config.core.v3.Metadata" // may hold any message for filters and loggers
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

// messageOf returns the message type of a field, or nil if it has none.
func messageOf(f protoreflect.FieldDescriptor) (protoreflect.MessageDescriptor, fieldKind) {
	switch {
	case f.IsMap():
		return f.MapValue().Message(), mapped
	case f.IsList():
		return f.Message(), list1
	}
	return f.Message(), single
}

// leadsSomewhere reports whether a type has a rule or contains a type that does.
func (p *plans) leadsSomewhere(d protoreflect.MessageDescriptor) bool {
	if known, ok := p.leads[d]; ok {
		return known
	}
	// Types are recursive. If the search finds nothing, no visited type leads to a rule; otherwise
	// that is known only for the types on the path to the rule.
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
