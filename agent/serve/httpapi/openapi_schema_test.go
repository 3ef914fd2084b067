package httpapi_test

import (
	"bytes"
	"encoding"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/nearside-mesh/nearside/agent/base/jsonpatch"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// schema is the part of JSON Schema that the documents of the API need.
type schema struct {
	media  string // unless it is JSON
	ref    string // of components
	typ    string // "" is anything
	format string
	about  string
	null   bool
	items  *schema
	fields []field
	extra  *schema // of a map, or of an object with further fields; nil: there are none
	oneOf  []*schema
}

type field struct {
	name     string
	required bool
	of       *schema
}

// specification collects the schemas of types.
type specification struct {
	t        *testing.T
	defined  map[string]*schema
	named    map[string]reflect.Type
	comments map[string]string // "package.Type" and "package.Type.Field"
	partial  bool              // fields that are required may be missing

	parameters, responses map[string]*yaml.Node // of components
	parameterTexts        map[string]string
}

func newSpecification(t *testing.T) *specification {
	return &specification{t, map[string]*schema{}, map[string]reflect.Type{}, map[string]string{}, false,
		map[string]*yaml.Node{}, map[string]*yaml.Node{}, map[string]string{}}
}

// describe takes the comments of the packages whose types are in documents; it comes before the
// first type.
func (b *specification) describe() {
	for _, dir := range []string{
		"model/access", "model/api", "model/finding", "compute/match", "answer/explain", "answer/explaindns", "serve/httpapi",
		"base/jsonpatch", "base/strict", "compute/policy", "model/resource",
	} {
		b.read(dir)
	}
}

// read takes the comments of a package, which are the descriptions of schemas and their fields.
func (b *specification) read(dir string) {
	files, err := fs.Glob(os.DirFS("../../"+dir), "*.go")
	if err != nil || len(files) == 0 {
		b.t.Fatal(dir, err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		source, err := os.ReadFile("../../" + dir + "/" + name)
		if err != nil {
			b.t.Fatal(err)
		}
		if !bytes.Contains(source, []byte("json:\"")) {
			continue // no document
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, source, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			b.t.Fatal(err)
		}
		for _, d := range f.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, s := range g.Specs {
				if s, ok := s.(*ast.TypeSpec); ok {
					b.comment(f.Name.Name+"."+s.Name.Name, g.Doc, s.Doc)
					if x, ok := s.Type.(*ast.StructType); ok {
						for _, m := range x.Fields.List {
							for _, n := range m.Names {
								b.comment(f.Name.Name+"."+s.Name.Name+"."+n.Name, m.Doc, m.Comment)
							}
						}
					}
				}
			}
		}
	}
}

func (b *specification) comment(name string, groups ...*ast.CommentGroup) {
	for _, g := range groups {
		if text := strings.Join(strings.Fields(g.Text()), " "); text != "" {
			b.comments[name] = goLink.ReplaceAllString(text, "$1")
			return
		}
	}
}

func (b *specification) typed(t reflect.Type) *schema {
	switch t {
	case reflect.TypeFor[time.Time]():
		return &schema{typ: "string", format: "date-time"}
	case reflect.TypeFor[json.RawMessage](), reflect.TypeFor[resource.Raw](), reflect.TypeFor[any]():
		return &schema{}
	case reflect.TypeFor[anything]():
		return &schema{typ: "object", extra: &schema{}}
	case reflect.TypeFor[nothing]():
		return &schema{typ: "object"}
	case reflect.TypeFor[resource.Duration]():
		return &schema{typ: "string", format: "duration"}
	case reflect.TypeFor[jsonpatch.Operation]():
		return &schema{typ: "object", about: "A step of a JSON Patch (RFC 6902).", extra: &schema{},
			fields: []field{{"op", true, &schema{typ: "string"}}, {"path", true, &schema{typ: "string"}}}}
	}
	if t.Kind() != reflect.Pointer && t.Implements(reflect.TypeFor[json.Marshaler]()) {
		b.t.Fatalf("%v writes its JSON by itself: say here what it is", t)
	}
	if t.Kind() != reflect.Pointer && t.Implements(reflect.TypeFor[encoding.TextMarshaler]()) {
		return &schema{typ: "string"}
	}
	switch t.Kind() {
	case reflect.Bool:
		return &schema{typ: "boolean"}
	case reflect.String:
		return &schema{typ: "string"}
	case reflect.Float32, reflect.Float64:
		return &schema{typ: "number"}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint8,
		reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return &schema{typ: "integer"}
	case reflect.Pointer:
		s := *b.typed(t.Elem())
		s.null = true
		return &s
	case reflect.Slice, reflect.Array:
		return &schema{typ: "array", items: b.typed(t.Elem())}
	case reflect.Map:
		return &schema{typ: "object", extra: b.typed(t.Elem())}
	case reflect.Struct:
		return b.object(t)
	}
	b.t.Fatalf("%v has no place in a document", t)
	return nil
}

// object returns a reference to the schema of a struct, which it defines.
func (b *specification) object(t reflect.Type) *schema {
	name := t.Name()
	if base, of, generic := strings.Cut(name, "["); generic {
		of = strings.TrimSuffix(of[strings.LastIndex(of, ".")+1:], "]")
		name = strings.ToUpper(base[:1]) + base[1:] + "Of" + strings.TrimSuffix(strings.ToUpper(of[:1])+of[1:], "Doc")
	}
	pkg := t.PkgPath()[strings.LastIndex(t.PkgPath(), "/")+1:]
	switch name {
	case "":
	case "resourceDoc":
		name = "Resource"
	case "Position":
		name = "FindingPlace" // the name that clients know
	default:
		name = strings.ToUpper(name[:1]) + name[1:]
		prefix := pkg
		switch pkg {
		case "api":
			prefix = apiPrefixes[name]
		case "strict":
			prefix = "resource" // the name that clients know
		case "explaindns":
			prefix = "explain"
		case "httpapi", "httpapi_test":
			prefix = ""
		}
		if prefix != "" {
			name = strings.ToUpper(prefix[:1]) + prefix[1:] + name
		}
	}
	s := &schema{typ: "object"}
	if name != "" {
		if known := b.named[name]; known == t {
			return &schema{ref: name}
		} else if known != nil {
			b.t.Fatalf("%v and %v have one name in the document", known, t)
		}
		b.named[name], b.defined[name] = t, s
		s.about = b.comments[pkg+"."+t.Name()]
	}
	b.members(t, pkg, s)
	if t == reflect.TypeFor[resourceDoc]() {
		s.about, s.extra = "A resource in its universal form: the fields of its kind stand at the top or below spec.",
			&schema{}
	}
	if name == "" {
		return s
	}
	return &schema{ref: name}
}

func (b *specification) members(t reflect.Type, pkg string, s *schema) {
	for i := range t.NumField() {
		f := t.Field(i)
		tag, rest, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && tag == "" {
			in := f.Type
			if in.Kind() == reflect.Pointer {
				in = in.Elem()
			}
			b.members(in, in.PkgPath()[strings.LastIndex(in.PkgPath(), "/")+1:], s)
			continue
		}
		if tag == "-" || !f.IsExported() {
			continue
		}
		if tag == "" {
			tag = f.Name
		}
		optional := strings.Contains(rest, "omitempty") || strings.Contains(rest, "omitzero")
		of := b.typed(f.Type)
		of.null = of.null && !optional
		if about := b.comments[pkg+"."+t.Name()+"."+f.Name]; about != "" {
			c := *of
			c.about = about
			of = &c
		}
		s.fields = slices.DeleteFunc(s.fields, func(x field) bool { return x.name == tag }) // of embedded structs
		s.fields = append(s.fields, field{tag, !optional, of})
	}
}

// check compares a document with a schema. A field that the schema does not have is a fault.
func (b *specification) check(what string, body []byte, s *schema) {
	b.t.Helper()
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		b.t.Errorf("%s: %v: %s", what, err, body)
		return
	}
	if err := b.fits(v, s, "$"); err != nil {
		b.t.Errorf("%s: %v, in %s", what, err, body)
	}
}

func (b *specification) fits(v any, s *schema, at string) error {
	if len(s.oneOf) > 0 {
		var last error
		for _, o := range s.oneOf {
			if last = b.fits(v, o, at); last == nil {
				return nil
			}
		}
		return last
	}
	if v == nil && (s.null || s.typ == "" && s.ref == "") {
		return nil
	}
	if s.ref != "" {
		s = b.defined[s.ref]
	}
	is := ""
	switch v := v.(type) {
	case nil:
		is = "null"
	case bool:
		is = "boolean"
	case string:
		is = "string"
	case json.Number:
		is = "number"
		if _, err := v.Int64(); err == nil && s.typ == "integer" {
			is = "integer"
		}
	case []any:
		is = "array"
		for i := range v {
			if s.items != nil {
				if err := b.fits(v[i], s.items, fmt.Sprintf("%s[%d]", at, i)); err != nil {
					return err
				}
			}
		}
	case map[string]any:
		is = "object"
		if err := b.fitsObject(v, s, at); err != nil {
			return err
		}
	}
	if s.typ != "" && s.typ != is {
		return fmt.Errorf("%s is of type %s, not %s", at, is, s.typ)
	}
	return nil
}

func (b *specification) fitsObject(v map[string]any, s *schema, at string) error {
	if s.typ == "" {
		return nil
	}
	known := map[string]bool{}
	for _, f := range s.fields {
		known[f.name] = true
		x, there := v[f.name]
		switch {
		case there:
			if err := b.fits(x, f.of, at+"."+f.name); err != nil {
				return err
			}
		case f.required && !b.partial:
			return fmt.Errorf("%s.%s is missing", at, f.name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(v)) {
		if known[name] {
			continue
		}
		if s.extra == nil {
			return fmt.Errorf("%s has no field %s", at, name)
		}
		if err := b.fits(v[name], s.extra, at+"."+name); err != nil {
			return err
		}
	}
	return nil
}

// full is a value of a type with something in every field: one item in lists, none of it twice.
func full(t reflect.Type, within []reflect.Type) reflect.Value {
	v := reflect.New(t).Elem()
	if slices.Contains(within, t) {
		return v
	}
	within = append(slices.Clip(within), t)
	switch t {
	case reflect.TypeFor[time.Time]():
		v.Set(reflect.ValueOf(time.Unix(1, 0)))
		return v
	case reflect.TypeFor[json.RawMessage]():
		v.SetBytes([]byte(`{"a":1}`))
		return v
	case reflect.TypeFor[jsonpatch.Operation]():
		v.Set(reflect.ValueOf(jsonpatch.Operation{Op: "remove", Path: "/a"}))
		return v
	}
	switch t.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.String:
		v.SetString("s")
	case reflect.Float32, reflect.Float64:
		v.SetFloat(1.5)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(1)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(1)
	case reflect.Pointer:
		v.Set(reflect.New(t.Elem()))
		v.Elem().Set(full(t.Elem(), within))
	case reflect.Slice:
		v.Set(reflect.Append(reflect.MakeSlice(t, 0, 1), full(t.Elem(), within)))
	case reflect.Map:
		v.Set(reflect.MakeMap(t))
		v.SetMapIndex(full(t.Key(), within), full(t.Elem(), within))
	case reflect.Struct:
		for i := range t.NumField() {
			if f := v.Field(i); f.CanSet() && t.Field(i).Tag.Get("json") != "-" {
				f.Set(full(f.Type(), within))
			}
		}
	}
	return v
}
