package resource

import (
	"reflect"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/strict"
)

// Merge returns the confs merged field by field, the later over the earlier, as JSON merge patch
// (RFC 7396) has it: mappings are merged, what is absent leaves the earlier value, and everything
// else, lists too, is replaced. Tags on a field of a conf say otherwise:
//
//	merge:"append"      the items of the later list come behind those of the earlier one
//	merge:"key=Field"   items of the same Field are merged, others come behind
//	merge:"also=Field"  a later value also removes the earlier value of Field, which says the same in another form
//	merge:"first=Field" items of the same Field are merged; those of the later list come first, in its order
//
// All confs have one type. They are not changed; the result shares memory with them and must not be
// changed either. With a single conf the result is that conf; without any it is nil.
func Merge(confs ...Conf) Conf {
	if len(confs) == 0 {
		return nil
	}
	if len(confs) == 1 {
		return confs[0]
	}
	if raw, ok := confs[len(confs)-1].(*RawConf); ok {
		return raw
	}
	out := reflect.New(reflect.TypeOf(confs[0]).Elem())
	for _, c := range confs {
		if v := reflect.ValueOf(c); v.Type() == out.Type() {
			mergeInto(out.Elem(), v.Elem(), "")
		}
	}
	merged, _ := out.Interface().(Conf)
	return merged
}

// mergeInto merges src over dst. A value that is zero counts as absent: what can be given as zero
// is a pointer.
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

// mergeable says whether a struct is merged by its fields. Those that read documents in their own
// way, such as durations, are values.
func mergeable(t reflect.Type) bool { return !strict.IsValue(t) }

// mergeList merges two lists, of which dst is the earlier one.
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

// keyOf is the canonical form of the field that items of a list are known by.
func keyOf(item reflect.Value, field string) string {
	b, _ := strict.MarshalJSON(item.FieldByName(field).Interface()) // a decoded value always has a JSON form
	return string(b)
}
