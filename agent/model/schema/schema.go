// Package schema describes resource kinds as JSON Schema, and lists their fields for people.
package schema

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/strict"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/secret"
)

// Of returns the JSON Schema (2020-12) of a kind's universal form. The decoder checks rules that a
// schema cannot express, such as fields that exclude each other. about returns the comment on a
// field of a Go type, given as PACKAGE.TYPE.FIELD, or "".
func Of(d resource.Descriptor, about func(field string) string) map[string]any {
	s := schemas{about: about}
	props := map[string]any{
		"type": map[string]any{"const": d.Kind},
		"name": map[string]any{"type": "string", "description": "name of the resource"},
		"labels": map[string]any{"type": "object", "additionalProperties": map[string]any{"type": "string"},
			"description": "labels; kuma.io/effect: shadow makes a policy a shadow policy"},
	}
	required := []string{"type", "name"}
	if d.Scope == resource.ScopeMesh {
		props["mesh"] = map[string]any{"type": "string", "description": "mesh that the resource belongs to"}
		required = append(required, "mesh")
	}
	for _, k := range []string{"creationTime", "modificationTime"} {
		props[k] = map[string]any{"type": "string", "format": "date-time",
			"description": "set by the agent; ignored on write"}
	}
	spec := s.spec(d.New())
	if d.SpecAtTop {
		for k, v := range spec["properties"].(map[string]any) {
			props[k] = v
		}
	} else {
		spec["description"] = "content of the resource"
		props["spec"] = spec
	}
	return map[string]any{
		"$schema": "https://json-schema.org/draft/2020-12/schema", "title": d.Kind, "type": "object",
		// status and similar fields are accepted and ignored
		"properties": props, "required": required, "additionalProperties": !d.SpecAtTop,
	}
}

type schemas struct {
	about func(string) string
	open  []reflect.Type // types that contain the current one
}

func object(props map[string]any) map[string]any {
	return map[string]any{"type": "object", "properties": props, "additionalProperties": false}
}

func list(of map[string]any, about string) map[string]any {
	return map[string]any{"type": "array", "items": of, "description": about}
}

// spec describes a spec by its PolicyShape or by its type.
func (s *schemas) spec(spec resource.Spec) map[string]any {
	switch p := spec.(type) {
	case *resource.Policy:
		return s.policy(p.Shape)
	case *resource.LegacyPolicy:
		props := map[string]any{}
		sides := []string{"sources", "destinations"}
		if p.Shape.Selectors {
			sides = []string{"selectors"}
		}
		for _, side := range sides {
			props[side] = list(s.of(reflect.TypeFor[resource.LegacySelector]()),
				map[string]string{"sources": "connections from proxies with these tags",
					"destinations": "connections to services with these tags", "selectors": "proxies with these tags"}[side])
		}
		if p.Shape.NewConf != nil {
			props["conf"] = s.of(reflect.TypeOf(p.Shape.NewConf()))
		}
		return object(props)
	}
	return s.of(reflect.TypeOf(spec))
}

func (s *schemas) policy(shape *resource.PolicyShape) map[string]any {
	conf := map[string]any{}
	if shape.NewConf != nil {
		conf = s.of(reflect.TypeOf(shape.NewConf()))
	}
	ref := func(kinds []string) map[string]any {
		out := s.of(reflect.TypeFor[resource.TargetRef]())
		if props, ok := out["properties"].(map[string]any); ok && len(kinds) > 0 {
			kind := map[string]any{"enum": kinds}
			if old, ok := props["kind"].(map[string]any); ok && old["description"] != nil {
				kind["description"] = old["description"]
			}
			props["kind"] = kind
		}
		return out
	}
	item := func(kinds []string) map[string]any {
		props := map[string]any{"targetRef": ref(kinds)}
		if of, ok := conf["properties"].(map[string]any); ok && shape.Inline {
			for k, v := range of {
				props[k] = v
			}
		} else {
			props["default"] = conf
		}
		return object(props)
	}
	top := slices.Concat(shape.Top, shape.TopFromOnly, shape.TopToOnly)
	props := map[string]any{"targetRef": ref(top)}
	props["targetRef"].(map[string]any)["description"] = "proxies that the policy selects; all of the mesh by default"
	if len(shape.From) > 0 {
		props["from"] = list(item(shape.From), "inbound connections, by source")
	}
	if len(shape.To) > 0 {
		props["to"] = list(item(shape.To), "outbound connections, by destination")
	}
	if shape.Rules {
		rule := map[string]any{"default": conf}
		if shape.NewRuleConf != nil {
			rule["default"] = s.of(reflect.TypeOf(shape.NewRuleConf()))
		}
		if shape.RuleMatches {
			rule["matches"] = list(s.of(reflect.TypeFor[resource.ClientMatch]()), "clients; all by default")
		}
		props["rules"] = list(object(rule), "inbound connections, by client; replaces from")
	}
	if shape.Default {
		props["default"] = conf
	}
	return object(props)
}

// textOr is a type with two forms: a text, and the form of another type.
type textOr interface {
	TextOr() (text string, other any)
}

// formed is a type that decodes itself from a mapping, whose fields those of another type describe.
type formed interface {
	Form() any
}

// of describes a type.
func (s *schemas) of(t reflect.Type) map[string]any {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t == reflect.TypeFor[resource.Duration]():
		return map[string]any{"type": []string{"string"}, "description": "a duration: 10s, 1h30m, 250ms"}
	case t == reflect.TypeFor[resource.IntOrString](), t == reflect.TypeFor[resource.Decimal]():
		return map[string]any{"type": []string{"integer", "number", "string"}}
	case t == reflect.TypeFor[resource.RawConf](), slices.Contains(s.open, t):
		return map[string]any{}
	case t == reflect.TypeFor[secret.EnvoyText]():
		return map[string]any{"type": "string", "description": "an Envoy message, as a string of YAML or JSON"}
	case strict.IsText(t):
		return map[string]any{"type": "string"}
	case t.Implements(reflect.TypeFor[textOr]()):
		text, other := reflect.Zero(t).Interface().(textOr).TextOr()
		return map[string]any{"anyOf": []any{map[string]any{"enum": []string{text}}, s.of(reflect.TypeOf(other))}}
	case t.Implements(reflect.TypeFor[formed]()):
		return s.of(reflect.TypeOf(reflect.Zero(t).Interface().(formed).Form()))
	case strict.IsValue(t): // it has a custom form
		return map[string]any{}
	}
	switch t.Kind() {
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Int, reflect.Int32, reflect.Int64:
		return map[string]any{"type": "integer"}
	case reflect.Uint, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return map[string]any{"type": "integer", "minimum": 0}
	case reflect.Float32, reflect.Float64:
		return map[string]any{"type": "number"}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": s.of(t.Elem())}
	case reflect.Slice, reflect.Array:
		if t.Elem().Kind() == reflect.Uint8 {
			return map[string]any{"type": "string"}
		}
		return map[string]any{"type": "array", "items": s.of(t.Elem())}
	case reflect.Struct:
		s.open = append(s.open, t)
		defer func() { s.open = s.open[:len(s.open)-1] }()
		props := map[string]any{}
		for _, f := range strict.FieldsOf(t) {
			field, holder := f.In(t)
			p := s.of(field.Type)
			limited(p, f.Check)
			if about := s.about(commentKey(holder, field.Name)); about != "" {
				p["description"] = about
			}
			props[f.Name] = p
		}
		if len(props) == 0 { // a type with a custom form
			return map[string]any{}
		}
		return object(props)
	}
	return map[string]any{}
}

// commentKey returns the key of a field's comment: "kinds/timeout.Conf.IdleTimeout".
func commentKey(t reflect.Type, field string) string {
	_, pkg, _ := strings.Cut(t.PkgPath(), "/agent/")
	return pkg + "." + t.Name() + "." + field
}

// limited adds the constraints of a check tag; see the decoder of resources.
func limited(p map[string]any, check string) {
	switch check {
	case "", "timeout":
	case "positive":
		p["description"] = "a duration above 0"
	case "someItems":
		p["minItems"] = 1
	case "atLeastOne":
		p["minimum"] = 1
	case "percent":
		p["minimum"], p["maximum"] = 0, 100
	case "percentage":
		p["description"] = "a percentage, 0 to 100"
	case "port":
		p["minimum"], p["maximum"] = 1, 65535
	default:
		delete(p, "type")
		p["enum"] = strings.Split(check, "|")
	}
}

// Field describes one field of a kind for people.
type Field struct {
	Path  string `json:"path"` // "spec.to[].default.requestTimeout"
	Type  string `json:"type"` // "string", "list of object", "one of A, B"
	About string `json:"about,omitempty"`
}

// Fields lists the fields of a schema from [Of], sorted by path, including nested fields.
func Fields(schema map[string]any) []Field {
	var out []Field
	var walk func(at string, s map[string]any)
	walk = func(at string, s map[string]any) {
		if at != "" {
			about, _ := s["description"].(string)
			out = append(out, Field{at, typeText(s), about})
		}
		if items, ok := s["items"].(map[string]any); ok {
			s, at = items, at+"[]"
		}
		if extra, ok := s["additionalProperties"].(map[string]any); ok {
			if _, deep := extra["properties"]; deep {
				walk(at+".KEY", extra)
			}
		}
		for _, form := range Forms(s) {
			if form["properties"] != nil {
				s = form
			}
		}
		props, _ := s["properties"].(map[string]any)
		var names []string
		for name := range props {
			names = append(names, name)
		}
		slices.SortFunc(names, func(a, b string) int { return rankOfField(a, b) })
		for _, name := range names {
			if p, ok := props[name].(map[string]any); ok {
				walk(strings.TrimPrefix(at+"."+name, "."), p)
			}
		}
	}
	walk("", schema)
	return out
}

// rankOfField sorts the fields that every document has first, and references before the fields that
// they apply to.
func rankOfField(a, b string) int {
	rank := func(name string) int {
		if i := slices.Index([]string{"type", "mesh", "name", "labels", "kind", "targetRef"}, name); i >= 0 {
			return i
		}
		return 10
	}
	if d := rank(a) - rank(b); d != 0 {
		return d
	}
	return strings.Compare(a, b)
}

// Forms returns the alternatives of a schema; nil if it has one form.
func Forms(s map[string]any) (out []map[string]any) {
	list, _ := s["anyOf"].([]any)
	for _, x := range list {
		if form, ok := x.(map[string]any); ok {
			out = append(out, form)
		}
	}
	return out
}

func typeText(s map[string]any) string {
	if alternatives := Forms(s); len(alternatives) > 0 {
		texts := make([]string, len(alternatives))
		for i := range alternatives {
			texts[i] = typeText(alternatives[i])
		}
		return strings.Join(texts, ", or ")
	}
	if list, ok := s["enum"].([]string); ok {
		return "one of " + strings.Join(list, ", ")
	}
	switch t := s["type"].(type) {
	case string:
		if items, ok := s["items"].(map[string]any); ok && t == "array" {
			return "list of " + typeText(items)
		}
		if extra, ok := s["additionalProperties"].(map[string]any); ok && t == "object" {
			return "map of " + typeText(extra)
		}
		lo, hi := s["minimum"], s["maximum"]
		switch {
		case hi != nil:
			return fmt.Sprintf("%s, %v to %v", t, lo, hi)
		case lo != nil && lo != 0:
			return fmt.Sprintf("%s, at least %v", t, lo)
		}
		return t
	case []string:
		return strings.Join(t, " or ")
	}
	if c, ok := s["const"].(string); ok {
		return c
	}
	return "anything"
}
