package proxypatch

import (
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/nearside-mesh/nearside/agent/resource"
)

// Envoy's API carries rules about fields, which its generated messages check. They do not look into packed messages,
// and they name fields as Go does: this file does the one and translates the other.

// ruleFault is the error of one rule.
type ruleFault interface {
	error
	Field() string
	Reason() string
	Cause() error
}

// ruleFaults are the errors of all rules of a message.
type ruleFaults interface {
	error
	AllErrors() []error
}

// checkRules reports what breaks the rules of a message and of all that is packed in it. A partial message is one that
// will be merged into another: what it does not give counts as given there, but items of its lists are whole.
func checkRules(v *resource.Validator, m proto.Message, partial bool) {
	if r, ok := m.(interface{ ValidateAll() error }); ok {
		reportRules(v, r.ValidateAll(), m.ProtoReflect(), partial)
	}
	checkPacked(v, m.ProtoReflect(), partial)
}

// broken returns the first rule that a message breaks. What is packed in it counts only with packed, for those who
// know that it is good.
func broken(m proto.Message, packed bool) error {
	if r, ok := m.(interface{ Validate() error }); !packed && (!ok || r.Validate() == nil) {
		return nil // without the cost of looking for the path
	}
	var faults []resource.Fault
	checkRules(resource.NewValidator("", &faults), m, false)
	return firstOf(faults)
}

// obeys reports whether a message breaks no rule.
func obeys(m proto.Message, partial bool) bool {
	var faults []resource.Fault
	checkRules(resource.NewValidator("", &faults), m, partial)
	return len(faults) == 0
}

func firstOf(faults []resource.Fault) error {
	switch {
	case len(faults) == 0:
		return nil
	case faults[0].Field == "":
		return fmt.Errorf("%s", faults[0].Reason)
	}
	return fmt.Errorf("%s: %s", faults[0].Field, faults[0].Reason)
}

func reportRules(v *resource.Validator, err error, m protoreflect.Message, partial bool) {
	if all, ok := err.(ruleFaults); ok {
		for _, e := range all.AllErrors() {
			reportRules(v, e, m, partial)
		}
		return
	}
	f, ok := err.(ruleFault)
	if !ok {
		if err != nil {
			v.Faultf("%v", err)
		}
		return
	}
	name, rest, _ := strings.Cut(f.Field(), "[")
	fd := fieldByGoName(m.Descriptor(), name)
	if fd == nil {
		if !partial {
			v.Faultf("%s: %s", oneofNamed(m.Descriptor(), name), f.Reason())
		}
		return
	}
	if partial && !m.Has(fd) {
		return
	}
	at, value := v.Field(fd.JSONName()), m.Get(fd)
	if rest != "" {
		key := strings.TrimSuffix(rest, "]")
		at, value = within(at, fd, value, key)
		partial = partial && keyed(fd)
	}
	if cause := f.Cause(); cause != nil && value.IsValid() {
		if sub, ok := value.Interface().(protoreflect.Message); ok {
			reportRules(at, cause, sub, partial)
			return
		}
	}
	at.Faultf("%s", f.Reason())
}

// within returns the item or entry of a field that an error is about.
func within(at *resource.Validator, fd protoreflect.FieldDescriptor, value protoreflect.Value, key string) (*resource.Validator, protoreflect.Value) {
	switch {
	case fd.IsList():
		i, err := strconv.Atoi(key)
		if err != nil || i < 0 || i >= value.List().Len() {
			return at, protoreflect.Value{}
		}
		return at.Index(i), value.List().Get(i)
	case fd.IsMap() && fd.MapKey().Kind() == protoreflect.StringKind:
		return at.Key(key), value.Map().Get(protoreflect.ValueOfString(key).MapKey())
	}
	return at, protoreflect.Value{}
}

// checkPacked checks what is packed somewhere in a message.
func checkPacked(v *resource.Validator, m protoreflect.Message, partial bool) {
	if a, ok := m.Interface().(*anypb.Any); ok {
		inner, err := a.UnmarshalNew()
		if err != nil {
			v.Faultf("%s: %s", a.TypeUrl, plainError(err))
			return
		}
		checkRules(v, inner, partial)
		return
	}
	rangeFields(m, func(fd protoreflect.FieldDescriptor, value protoreflect.Value) {
		at := v.Field(fd.JSONName())
		switch {
		case fd.IsMap():
			if fd.MapValue().Message() == nil {
				return
			}
			for _, k := range sortedKeys(value.Map()) {
				checkPacked(at.Key(k.String()), value.Map().Get(k).Message(), partial)
			}
		case fd.Message() == nil:
		case fd.IsList():
			for i := range value.List().Len() {
				checkPacked(at.Index(i), value.List().Get(i).Message(), partial && keyed(fd))
			}
		default:
			checkPacked(at, value.Message(), partial)
		}
	})
}

// fieldByGoName finds a field by the name that it has in Go.
func fieldByGoName(md protoreflect.MessageDescriptor, name string) protoreflect.FieldDescriptor {
	for i := range md.Fields().Len() {
		if fd := md.Fields().Get(i); goName(string(fd.Name())) == name {
			return fd
		}
	}
	return nil
}

// oneofNamed says which fields an error means that names a oneof.
func oneofNamed(md protoreflect.MessageDescriptor, name string) string {
	for i := range md.Oneofs().Len() {
		o := md.Oneofs().Get(i)
		if goName(string(o.Name())) != name {
			continue
		}
		names := make([]string, o.Fields().Len())
		for j := range names {
			names[j] = o.Fields().Get(j).JSONName()
		}
		return "one of " + strings.Join(names, ", ")
	}
	return name
}

// goName is the name that protoc-gen-go gives to a field.
func goName(name string) string {
	b := make([]byte, 0, len(name))
	upper := true
	for i := range len(name) {
		c := name[i]
		switch {
		case c == '_' && i+1 < len(name) && 'a' <= name[i+1] && name[i+1] <= 'z':
			upper = true
			continue
		case 'a' <= c && c <= 'z':
			if upper {
				c -= 'a' - 'A'
			}
			upper = false
		default: // behind a digit a new word begins
			upper = c < 'A' || c > 'Z'
		}
		b = append(b, c)
	}
	return string(b)
}
