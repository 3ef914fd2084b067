package check

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/nearside-mesh/nearside/agent/compute/envoy"
	"github.com/nearside-mesh/nearside/agent/compute/match"
	"github.com/nearside-mesh/nearside/agent/model/finding"
)

// maxSeconds is the longest duration that Envoy can convert: nanoseconds must fit into 63 bits
// (measured with 1.36.2 and 1.40.0).
const maxSeconds = math.MaxInt64/1_000_000_000 - 1

// maxPacked is the maximum depth of packed messages.
const maxPacked = 16

// decoding returns the options of Envoy's decoder, which allows 100 levels of nesting.
func decoding() proto.UnmarshalOptions { return proto.UnmarshalOptions{RecursionLimit: 100} }

// walker checks a message and everything in it.
type walker struct {
	*subject
	cache *cache
	scope scope
	typed slot // slot of the TypedExtensionConfig that is the current message
}

// root checks the message of a resource.
func (w *walker) root(m proto.Message) {
	w.fieldRules(m)
	w.message(m.ProtoReflect(), w.cache.plans.of(m.ProtoReflect().Descriptor()))
}

// message applies the rule of a message and then walks its submessages.
func (w *walker) message(m protoreflect.Message, p *plan) {
	w.stack = append(w.stack, p.name)
	if p.rule != nil && w.scope == allRules {
		p.rule(w.subject, m.Interface())
	}
	for i := range p.fields {
		f := &p.fields[i]
		if !m.Has(f.descriptor) {
			continue
		}
		v := m.Get(f.descriptor)
		w.path = append(w.path, pathElement{field: f.name, index: -1})
		at := &w.path[len(w.path)-1]
		switch f.kind {
		case single:
			w.value(v.Message(), f)
		case list1:
			was := w.scope
			if was == partOnly && !byPriority(f.descriptor) {
				w.scope = fieldsOnly
			}
			for j := range v.List().Len() {
				at.index = j
				w.value(v.List().Get(j).Message(), f)
				at = &w.path[len(w.path)-1] // append may have moved the slice
			}
			w.scope = was
		case mapped:
			w.entries(v.Map(), f)
		}
		w.path = w.path[:len(w.path)-1]
	}
	w.stack = w.stack[:len(w.stack)-1]
}

// entries walks a map in the order of its keys.
func (w *walker) entries(m protoreflect.Map, f *planField) {
	keys := make([]protoreflect.MapKey, 0, m.Len())
	m.Range(func(k protoreflect.MapKey, _ protoreflect.Value) bool {
		keys = append(keys, k)
		return true
	})
	slices.SortFunc(keys, func(a, b protoreflect.MapKey) int { return strings.Compare(a.String(), b.String()) })
	for _, k := range keys {
		w.path[len(w.path)-1].key = k.String()
		w.value(m.Get(k).Message(), f)
	}
}

func (w *walker) value(m protoreflect.Message, f *planField) {
	switch f.of.FullName() {
	case nameAny:
		if a, ok := m.Interface().(*anypb.Any); ok {
			s := f.slot
			if isTyped(f.descriptor.ContainingMessage()) {
				s = w.typed
			}
			w.packed(a, s.at(w))
		}
	case nameDuration:
		if d, ok := m.Interface().(*durationpb.Duration); ok && w.scope == allRules &&
			(d.GetSeconds() < 0 || d.GetNanos() < 0 || !d.IsValid() || d.GetSeconds() > maxSeconds) {
			w.report(71, finding.Reject, "", "%ds %dns is not a duration that Envoy can read: use 0s to %ds",
				d.GetSeconds(), d.GetNanos(), int64(maxSeconds))
		}
	default:
		was := w.typed
		w.typed = f.slot
		w.message(m, w.cache.plans.of(f.of))
		w.typed = was
	}
}

// isTyped reports whether a message is a named extension.
func isTyped(d protoreflect.MessageDescriptor) bool {
	return d != nil &&
		(d.FullName() == "envoy.config.core.v3.TypedExtensionConfig" || d.FullName() == "xds.core.v3.TypedExtensionConfig")
}

// packed checks an Any: whether its type is known and fits the slot, and the message itself.
func (w *walker) packed(a *anypb.Any, in slot) {
	if w.scope != allRules {
		w.unpack(a, in)
		return
	}
	if in == networkFilterSlot && w.anys == 0 {
		w.repeated(a, in)
		return
	}
	w.unpack(a, in)
}

// weight returns a number that grows with every result of a resource.
func (s *subject) weight() int {
	return len(s.out.findings) + len(s.out.newer) + len(s.out.refs) + len(s.out.binds) + len(s.out.regexes) +
		len(s.out.files) + s.contextual
}

func (w *walker) unpack(a *anypb.Any, in slot) {
	url := a.GetTypeUrl()
	if w.anys >= maxPacked {
		w.report(0, finding.Reject, "", "messages are packed more than %d deep", maxPacked)
		return
	}
	m, ok := w.decode(a)
	if !ok {
		return
	}
	name := m.ProtoReflect().Descriptor().FullName()
	if w.scope == allRules {
		switch index, fits, why := in.fit(name); {
		case index >= 0:
			w.out.uses.add(index)
		case !fits && (slots[in].types == nil || isKnownType(name)):
			w.report(slots[in].rule, finding.Reject, "", "%s is %s", match.ShortURL(url), why)
			return
		case !fits: // a custom Envoy may contain it
			w.refer(extensionType, envoy.TypePrefix+string(name), "", slots[in].rule, finding.Reject, "it is "+why)
			return
		}
	}
	w.anys++
	defer func() { w.anys-- }()
	w.fieldRules(m)
	w.message(m.ProtoReflect(), w.cache.plans.of(m.ProtoReflect().Descriptor()))
}

// decode decodes an Any. It decodes a TypedStruct as the message that it represents.
func (w *walker) decode(a *anypb.Any) (proto.Message, bool) {
	t, err := protoregistry.GlobalTypes.FindMessageByURL(a.GetTypeUrl())
	if err != nil {
		// The facts about the proxy determine whether its Envoy knows the type.
		w.refer(extensionType, a.GetTypeUrl(), "", 23, finding.Reject, "Envoy rejects a type that it does not know")
		return nil, false
	}
	m := t.New().Interface()
	if err := decoding().Unmarshal(a.GetValue(), m); err != nil {
		w.report(0, finding.Reject, "", "it cannot be decoded as %s: %v", match.ShortURL(a.GetTypeUrl()), err)
		return nil, false
	}
	if inner, is := typedStruct(m); is {
		t, err := protoregistry.GlobalTypes.FindMessageByURL(inner.url)
		if err != nil {
			w.refer(extensionType, inner.url, "", 23, finding.Reject, "Envoy rejects a type that it does not know")
			return nil, false
		}
		m = t.New().Interface()
		if err := inner.into(m); err != nil {
			w.report(0, finding.Reject, "value", "it cannot be read as %s: %v", match.ShortURL(inner.url), err)
			return nil, false
		}
	}
	return m, true
}

// extensionType is the kind of a reference to a type that the program does not know.
const extensionType = envoy.NumKinds

// index formats an index for a pointer.
func index(i int) string { return strconv.Itoa(i) }
