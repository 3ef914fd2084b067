package strict

import (
	"encoding/base64"
	"reflect"
	"strconv"
)

func (d *Decoder) mapping(n *Node, v reflect.Value) {
	t := v.Type()
	if !d.Is(n, Mapping, "a mapping") {
		return
	}
	if t.Key().Kind() != reflect.String {
		d.Faultf(n.Line, "cannot be decoded: %s does not have string keys", t)
		return
	}
	if len(n.Pairs) == 0 {
		v.SetZero() // the canonical form does not contain empty maps
		return
	}
	if m, ok := v.Addr().Interface().(*map[string]string); ok {
		*m = d.strings(n)
		return
	}
	out := reflect.MakeMapWithSize(t, len(n.Pairs))
	for i := range n.Pairs {
		p := &n.Pairs[i]
		e := reflect.New(t.Elem()).Elem()
		d.enterKey(p.Key)
		d.value(p.Value, e)
		d.Leave()
		out.SetMapIndex(reflect.ValueOf(p.Key).Convert(t.Key()), e)
	}
	v.Set(out)
}

// strings decodes a map of strings, such as tags and labels, without reflection, since it is the
// most common map.
func (d *Decoder) strings(n *Node) map[string]string {
	if d.Strings != nil {
		if out := d.Strings(d, n.Pairs); out != nil {
			return out
		}
	}
	out := make(map[string]string, len(n.Pairs))
	for i := range n.Pairs {
		p := &n.Pairs[i]
		if p.Value.Kind != String {
			d.enterKey(p.Key)
			d.WrongType(p.Value, "a string")
			d.Leave()
			continue
		}
		out[p.Key] = p.Value.Text
	}
	return out
}

func (d *Decoder) list(n *Node, v reflect.Value) {
	t := v.Type()
	if t.Elem().Kind() == reflect.Uint8 {
		d.bytes(n, v)
		return
	}
	if !d.Is(n, List, "a list") {
		return
	}
	if len(n.Items) == 0 {
		v.SetZero()
		return
	}
	out := reflect.MakeSlice(t, len(n.Items), len(n.Items))
	for i, it := range n.Items {
		d.EnterItem(i)
		if ti := d.Types.of(t.Elem()); it.Kind == Null && !ti.node {
			d.Faultf(it.Line, "the item is empty; give it a value or remove it%s", ti.list())
		} else {
			d.value(it, out.Index(i))
		}
		d.Leave()
	}
	v.Set(out)
}

func (d *Decoder) bytes(n *Node, v reflect.Value) {
	if !d.Is(n, String, "a string in base64") {
		return
	}
	raw, err := base64.StdEncoding.DecodeString(n.Text)
	if err != nil {
		d.Faultf(n.Line, "%s is not base64 (RFC 4648 section 4): %v", n.Show(), err)
		return
	}
	if len(raw) > 0 {
		v.SetBytes(raw)
	}
}

func (d *Decoder) scalar(n *Node, v reflect.Value) {
	switch k := v.Kind(); k {
	case reflect.String:
		if d.Is(n, String, "a string") {
			v.SetString(n.Text)
		}
	case reflect.Bool:
		if d.Is(n, Bool, "a boolean") {
			v.SetBool(n.Text == "true")
		}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		if !d.Is(n, Int, wholeNumber) {
			return
		}
		i, err := strconv.ParseInt(n.Text, 10, v.Type().Bits())
		if err != nil {
			d.Faultf(n.Line, "%s is out of range: a whole number of %d bits is expected", n.Show(), v.Type().Bits())
			return
		}
		v.SetInt(i)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		if !d.Is(n, Int, wholeNumber) {
			return
		}
		u, err := strconv.ParseUint(n.Text, 10, v.Type().Bits())
		if err != nil {
			d.Faultf(n.Line, "%s is out of range: a whole number from 0 to %d is expected",
				n.Show(), ^uint64(0)>>(64-v.Type().Bits()))
			return
		}
		v.SetUint(u)
	case reflect.Float32, reflect.Float64:
		if n.Kind != Int && n.Kind != Float {
			d.WrongType(n, "a number")
			return
		}
		f, err := strconv.ParseFloat(n.Text, v.Type().Bits())
		if err != nil {
			d.Faultf(n.Line, "%s is out of range of a %d-bit float", n.Show(), v.Type().Bits())
			return
		}
		v.SetFloat(f)
	default:
		d.Faultf(n.Line, "cannot be decoded: documents do not support %s", v.Type())
	}
}
