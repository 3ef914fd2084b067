package value

import (
	"reflect"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/strict"
)

// MergeAll merges pointers to structs by the rules and tags that resource.Merge documents; later
// ones take precedence. It does not change them, and ignores those of another type than the first.
func MergeAll[T any](list []T) T {
	out := reflect.New(reflect.TypeOf(list[0]).Elem())
	for _, x := range list {
		if v := reflect.ValueOf(x); v.Type() == out.Type() {
			mergeInto(out.Elem(), v.Elem(), "")
		}
	}
	merged, _ := out.Interface().(T)
	return merged
}

// mergeInto merges src into dst. A zero value counts as absent; fields that may be set to zero are
// pointers.
func mergeInto(dst, src reflect.Value, how string) {
	if src.IsZero() {
		return
	}
	switch src.Kind() {
	case reflect.Pointer:
		if src.Elem().Kind() != reflect.Struct || !mergeable(src.Type().Elem()) || dst.IsNil() {
			if how != "" && !dst.IsNil() && src.Elem().Kind() == reflect.Slice {
				both := reflect.New(src.Type().Elem())
				both.Elem().Set(dst.Elem())
				mergeList(both.Elem(), src.Elem(), how)
				dst.Set(both)
				return
			}
			dst.Set(src)
			return
		}
		both := reflect.New(src.Type().Elem())
		both.Elem().Set(dst.Elem())
		mergeInto(both.Elem(), src.Elem(), how)
		dst.Set(both)
	case reflect.Struct:
		if !mergeable(src.Type()) {
			dst.Set(src)
			return
		}
		for i := range src.NumField() {
			f := src.Type().Field(i)
			if !f.IsExported() {
				continue
			}
			how := f.Tag.Get("merge")
			if also, ok := strings.CutPrefix(how, "also="); ok && !src.Field(i).IsZero() && src.FieldByName(also).IsZero() {
				dst.FieldByName(also).SetZero()
			}
			mergeInto(dst.Field(i), src.Field(i), how)
		}
	case reflect.Map:
		both := reflect.MakeMapWithSize(src.Type(), dst.Len()+src.Len())
		for _, m := range []reflect.Value{dst, src} {
			for it := m.MapRange(); it.Next(); {
				v := it.Value()
				if old := both.MapIndex(it.Key()); old.IsValid() {
					merged := reflect.New(v.Type()).Elem()
					merged.Set(old)
					mergeInto(merged, v, "")
					v = merged
				}
				both.SetMapIndex(it.Key(), v)
			}
		}
		dst.Set(both)
	case reflect.Slice:
		mergeList(dst, src, how)
	default:
		dst.Set(src)
	}
}

// mergeable reports whether a struct is merged by its fields. Types that decode themselves, such as
// durations, are values.
func mergeable(t reflect.Type) bool { return !strict.IsValue(t) }

// mergeList merges src into the earlier list dst.
func mergeList(dst, src reflect.Value, how string) {
	if how == "" || dst.Len() == 0 {
		dst.Set(src)
		return
	}
	key, _ := strings.CutPrefix(how, "key=")
	front, behind := dst, src
	name, first := strings.CutPrefix(how, "first=")
	if first {
		key, front, behind = name, src, dst
	}
	out := reflect.MakeSlice(dst.Type(), front.Len(), front.Len()+behind.Len())
	reflect.Copy(out, front)
	index := map[string]int{}
	for i := 0; i < front.Len() && how != "append"; i++ {
		k := keyOf(front.Index(i), key)
		if _, known := index[k]; !known || !first {
			index[k] = i
		}
	}
	for i := range behind.Len() {
		item, at, known := behind.Index(i), 0, false
		if how != "append" {
			at, known = index[keyOf(item, key)]
		}
		if !known {
			out = reflect.Append(out, item)
			continue
		}
		both := reflect.New(item.Type()).Elem()
		if first {
			both.Set(item)
			item = out.Index(at)
		} else {
			both.Set(out.Index(at))
		}
		mergeInto(both, item, "")
		out.Index(at).Set(both)
	}
	dst.Set(out)
}

// keyOf returns the canonical form of the field that identifies items of a list.
func keyOf(item reflect.Value, field string) string {
	b, _ := strict.MarshalJSON(item.FieldByName(field).Interface()) // a decoded value always has a JSON form
	return string(b)
}
