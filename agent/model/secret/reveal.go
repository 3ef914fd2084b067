package secret

import "reflect"

// Reveal returns a copy of a value that marshals with its secrets. Parts without secrets are shared
// with the value. The copy is for the disk and for digests.
func Reveal(v any) any { return reveal(reflect.ValueOf(v)).Interface() }

// value is a type that marshals redacted.
type value interface {
	opened() any // the same value, which marshals in clear text
}

// reveal returns a copy of a value in which all secrets are in clear text. Parts without secrets
// are shared.
func reveal(v reflect.Value) reflect.Value {
	if v.Kind() == reflect.Struct {
		if s, ok := v.Interface().(value); ok {
			if o := reflect.ValueOf(s.opened()); o.Type() == v.Type() { // else the method belongs to an embedded type
				return o
			}
		}
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() || v.Elem().Kind() == reflect.Func {
			return v
		}
		e := reveal(v.Elem())
		if v.Kind() == reflect.Interface {
			out := reflect.New(v.Type()).Elem()
			out.Set(e)
			return out
		}
		out := reflect.New(v.Type().Elem())
		out.Elem().Set(e)
		return out
	case reflect.Struct:
		out := reflect.New(v.Type()).Elem()
		out.Set(v)
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				out.Field(i).Set(reveal(v.Field(i)))
			}
		}
		return out
	case reflect.Slice:
		if v.IsNil() || v.Type().Elem().Kind() == reflect.Uint8 {
			return v
		}
		out := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
		for i := range v.Len() {
			out.Index(i).Set(reveal(v.Index(i)))
		}
		return out
	case reflect.Map:
		if v.IsNil() {
			return v
		}
		out := reflect.MakeMapWithSize(v.Type(), v.Len())
		for it := v.MapRange(); it.Next(); {
			out.SetMapIndex(it.Key(), reveal(it.Value()))
		}
		return out
	}
	return v
}

// HeldBy reports whether the type of a value has a field for a secret, even if it is unset.
func HeldBy(v any) bool { return heldBy(reflect.TypeOf(v), map[reflect.Type]bool{}) }

func heldBy(t reflect.Type, seen map[reflect.Type]bool) bool {
	if t == nil || seen[t] {
		return false
	}
	seen[t] = true
	if t.Implements(reflect.TypeFor[value]()) {
		return true
	}
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array:
		return heldBy(t.Elem(), seen)
	case reflect.Map:
		return heldBy(t.Key(), seen) || heldBy(t.Elem(), seen)
	case reflect.Struct:
		for i := range t.NumField() {
			if f := t.Field(i); f.IsExported() && heldBy(f.Type, seen) {
				return true
			}
		}
	}
	return false
}
