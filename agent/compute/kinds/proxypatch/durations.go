package proxypatch

import (
	"regexp"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/durationpb"
)

// seconds matches a duration in protobuf's JSON form.
var seconds = regexp.MustCompile(`^-?\d+(\.\d{1,9})?s$`)

// convertDurations replaces durations such as 3h and 100ms in the JSON form of a message, which
// Kuma's decoder reads as Go does, by protobuf's form in seconds. It modifies tree and returns true
// if it replaced one. Other values that are not durations remain for the decoder to reject.
func convertDurations(tree any, md protoreflect.MessageDescriptor) bool {
	o, ok := tree.(map[string]any)
	if !ok {
		return false
	}
	if packed(md) {
		url, _ := o[typeKey].(string)
		mt, err := protoregistry.GlobalTypes.FindMessageByURL(url)
		if err != nil {
			return false
		}
		if md = mt.Descriptor(); isDuration(md) {
			var changed bool
			o["value"], changed = convertDuration(o["value"])
			return changed
		}
	}
	if wellKnown(md) {
		return false
	}
	changed := false
	for key, value := range o {
		fd := fieldNamed(md, key)
		switch {
		case fd == nil || fd.Message() == nil:
		case fd.IsMap():
			entries, _ := value.(map[string]any)
			for k, entry := range entries {
				changed = put(fd.MapValue().Message(), entry, func(v any) { entries[k] = v }) || changed
			}
		case fd.IsList():
			items, _ := value.([]any)
			for i, item := range items {
				changed = put(fd.Message(), item, func(v any) { items[i] = v }) || changed
			}
		default:
			changed = put(fd.Message(), value, func(v any) { o[key] = v }) || changed
		}
	}
	return changed
}

// put converts the durations of a value of a message field. set replaces the value.
func put(md protoreflect.MessageDescriptor, value any, set func(any)) bool {
	if md == nil || !isDuration(md) {
		return md != nil && convertDurations(value, md)
	}
	out, changed := convertDuration(value)
	if changed {
		set(out)
	}
	return changed
}

func isDuration(md protoreflect.MessageDescriptor) bool {
	return md.FullName() == "google.protobuf.Duration"
}

// convertDuration returns a duration in protobuf's form, and whether that differs from the value.
func convertDuration(value any) (any, bool) {
	s, ok := value.(string)
	if !ok || seconds.MatchString(s) {
		return value, false
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return value, false
	}
	b, err := protojson.Marshal(durationpb.New(d))
	if err != nil {
		return value, false
	}
	return strings.Trim(string(b), `"`), true
}
