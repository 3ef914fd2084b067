package httpapi_test

import (
	"bytes"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/nearside-mesh/nearside/agent/answer/explain"
	"github.com/nearside-mesh/nearside/agent/answer/explaindns"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/serve/httpapi"
	"github.com/nearside-mesh/nearside/agent/serve/params"
)

// document is the whole, as OpenAPI 3.1.
func (b *specification) document(routes []httpapi.Route) []byte {
	b.of(api.Error{})
	b.of(api.Item{})
	for _, data := range []any{api.Hello{}, api.ChangeEvent{}, api.ProxyEvent{}, api.AckEvent{}, api.NackEvent{},
		api.ProblemEvent{}, api.Lost{}, api.End{}} {
		b.of(data)
	}
	paths := map[string]map[string]*yaml.Node{}
	slices.SortFunc(routes, func(x, y httpapi.Route) int {
		return strings.Compare(x.Pattern+x.Method, y.Pattern+y.Method)
	})
	for i := range routes {
		x := &routes[i]
		path := strings.TrimSuffix(x.Pattern, "{$}")
		if paths[path] == nil {
			paths[path] = map[string]*yaml.Node{}
		}
		paths[path][strings.ToLower(x.Method)] = b.operation(x, operations[x.Method+" "+x.Pattern])
	}
	list := mapping()
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		item := mapping()
		for _, method := range slices.Sorted(maps.Keys(paths[path])) {
			add(item, method, paths[path][method])
		}
		add(list, path, item)
	}
	schemas := mapping()
	for _, name := range slices.Sorted(maps.Keys(b.defined)) {
		add(schemas, name, b.defined[name].node())
	}
	root := mapping("openapi", "3.1.0",
		"info", mapping("title", "nearside", "version", "v1", "license", mapping("name", "Apache License 2.0",
			"identifier", "Apache-2.0"), "description", about),
		"servers", sequence(mapping("url", "http://localhost",
			"description", "over the unix socket: curl --unix-socket /run/nearside/nearside.sock http://localhost/")),
		"security", sequence(mapping(), mapping("token", sequence())),
		"paths", list,
		"components", mapping("securitySchemes", mapping("token", mapping("type", "http", "scheme", "bearer", "description",
			"Required over TCP. On the unix socket, the kernel identifies the sender.")), "parameters", sorted(b.parameters),
			"responses", sorted(b.responses), "schemas", schemas))
	var out bytes.Buffer
	out.WriteString("# Written by the test TestOpenAPI of agent/serve/httpapi; make golden updates it.\n")
	e := yaml.NewEncoder(&out)
	e.SetIndent(2)
	if err := e.Encode(root); err != nil {
		b.t.Fatal(err)
	}
	return out.Bytes()
}

// byKey sorts the members of a mapping.
func byKey(n *yaml.Node) *yaml.Node {
	nodes := map[string]*yaml.Node{}
	for i := 0; i < len(n.Content); i += 2 {
		nodes[n.Content[i].Value] = n.Content[i+1]
	}
	return sorted(nodes)
}

func sorted(nodes map[string]*yaml.Node) *yaml.Node {
	out := mapping()
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		add(out, name, nodes[name])
	}
	return out
}

func (b *specification) operation(x *httpapi.Route, op operation) *yaml.Node {
	list := sequence()
	for _, p := range params.InPath(x.Pattern) {
		add(list, "", b.parameter(op.id, "path", p, params.OfPath(p)))
	}
	for _, p := range strings.Fields(op.query) {
		add(list, "", b.parameter(op.id, "query", p, params.Of(x.Method, x.Pattern, p)))
	}
	for _, p := range strings.Fields(op.headers) {
		add(list, "", b.parameter(op.id, "header", p, params.Limits{Type: params.String}))
	}
	out := mapping("operationId", op.id, "summary", op.does, "description", permissionText(x, op.id),
		"x-permission", permissionNode(x))
	if x.Open {
		add(out, "security", sequence())
	}
	if len(list.Content) > 0 {
		add(out, "parameters", list)
	}
	if op.body != nil {
		most := maxBody(op.id)
		add(out, "requestBody", mapping("description", fmt.Sprintf("At most %d MiB.", most>>20), "required", op.id != "diff",
			"content", content(b.of(op.body)), "x-maxBytes", most))
	}
	responses := mapping()
	ok := mapping("description", "Done.")
	switch s := b.of(op.answer); {
	case op.id == "tokens":
	case s == nil:
		add(responses, "204", ok)
	default:
		add(ok, "content", content(s))
		add(responses, "200", ok)
		if op.id == "put" || op.id == "putGlobal" {
			add(responses, "201", mapping("description", "Created.", "content", content(s)))
		}
		if strings.Contains(op.headers, "If-None-Match") && x.Method == "GET" {
			add(responses, "304", mapping("description", "Not modified: If-None-Match has the ETag of the resource."))
		}
		if op.id == "ready" || op.id == "live" {
			add(responses, "503", mapping("description", "At least one check has failed; the document lists them.",
				"content", content(s)))
		}
	}
	b.failures(x, op, responses)
	add(out, "responses", byKey(responses))
	return out
}

// parameter returns a reference to a parameter, which it defines.
func (b *specification) parameter(id, in, name string, l params.Limits) *yaml.Node {
	value := mapping("type", l.Type)
	if l.Type == params.Integer {
		add(value, "minimum", l.Min)
		add(value, "maximum", l.Max)
	}
	if in == "path" {
		add(value, "minLength", 1)
	}
	if l.MaxLength > 0 {
		add(value, "maxLength", l.MaxLength)
	}
	if l.Pattern != "" {
		add(value, "pattern", l.Pattern)
	}
	if len(l.Enum) > 0 {
		enum := sequence()
		for _, v := range l.Enum {
			add(enum, "", v)
		}
		add(value, "enum", enum)
	}
	if l.Default != "" {
		var v any = l.Default
		_ = yaml.Unmarshal([]byte(l.Default), &v) // a scalar
		add(value, "default", v)
	}
	out := mapping("name", name, "in", in)
	if in == "path" || l.Required {
		add(out, "required", true)
	}
	about := parameters[name]
	if in == "path" {
		about = inPath[name]
	}
	add(out, "description", about)
	if l.Comma {
		add(out, "style", "form")
		add(out, "explode", false)
	}
	if name == "verbose" {
		add(out, "allowEmptyValue", true)
	}
	if l.IsList() {
		value = mapping("type", "array", "items", value)
		if l.Many > 0 {
			add(value, "maxItems", l.Many)
		}
	}
	add(out, "schema", value)
	text, err := yaml.Marshal(out)
	if err != nil {
		b.t.Fatal(err)
	}
	key := name
	if known, ok := b.parameterTexts[key]; ok && known != string(text) {
		key += "." + id
	}
	b.parameterTexts[key], b.parameters[key] = string(text), out
	return flow(mapping("$ref", "#/components/parameters/"+key))
}

// flow shows a node on one line.
func flow(n *yaml.Node) *yaml.Node {
	n.Style = yaml.FlowStyle
	return n
}

func content(s *schema) *yaml.Node {
	switch s.media {
	case "":
		return mapping("application/json", mapping("schema", s.node()))
	case documents: // the content selects the decoder, not the header
		resource := mapping("schema", (&schema{ref: "Resource"}).node())
		return mapping("application/yaml", resource, "application/json", resource)
	}
	return mapping(s.media, mapping("schema", mapping("type", "string")))
}

func (s *schema) node() *yaml.Node {
	n := mapping()
	if s.about != "" {
		add(n, "description", s.about)
	}
	ref := mapping("$ref", "#/components/schemas/"+s.ref)
	switch {
	case len(s.oneOf) > 0:
		list := sequence()
		for _, o := range s.oneOf {
			add(list, "", o.node())
		}
		add(n, "oneOf", list)
	case s.ref != "" && s.null:
		add(n, "anyOf", sequence(ref, mapping("type", "null")))
	case s.ref != "":
		n.Content = append(n.Content, ref.Content...)
	case s.typ != "" && s.null:
		add(n, "type", sequence(s.typ, "null"))
	case s.typ != "":
		add(n, "type", s.typ)
	}
	if s.format != "" {
		add(n, "format", s.format)
	}
	if s.items != nil {
		add(n, "items", s.items.node())
	}
	required, properties := sequence(), mapping()
	for _, f := range s.fields {
		if f.required {
			add(required, "", f.name)
		}
		add(properties, f.name, f.of.node())
	}
	if len(required.Content) > 0 {
		add(n, "required", required)
	}
	if len(properties.Content) > 0 {
		add(n, "properties", properties)
	}
	if s.extra != nil && s.extra.node().Content != nil {
		add(n, "additionalProperties", s.extra.node())
	}
	return n
}

// mapping, sequence and add build YAML in the order in which it is said.
func mapping(pairs ...any) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	for i := 0; i < len(pairs); i += 2 {
		add(n, pairs[i].(string), pairs[i+1])
	}
	return n
}

func sequence(items ...any) *yaml.Node {
	n := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
	for _, x := range items {
		add(n, "", x)
	}
	return n
}

// add adds a value to a mapping, or with an empty key to a sequence.
func add(n *yaml.Node, key string, value any) {
	if key != "" {
		k := &yaml.Node{}
		k.SetString(key)
		n.Content = append(n.Content, k)
	}
	v, ok := value.(*yaml.Node)
	if !ok {
		v = &yaml.Node{}
		_ = v.Encode(value) // a string, number or boolean always can
	}
	if v.Kind == yaml.MappingNode && len(v.Content) > 0 && n.Kind == yaml.SequenceNode {
		n.Style = 0
	}
	n.Content = append(n.Content, v)
}

// apiPrefixes are the prefixes of schemas of package api, which clients know: those of documents
// that are parts of a diff, of an explanation, or of the state of an xDS client.
var apiPrefixes = map[string]string{
	"Cause": "change", "Diff": "change", "DiffResource": "change", "FieldDiff": "change", "Finding": "change",
	"ItemDiff": "change", "PartDiff": "change", "Problem": "change", "ProxyDiff": "change", "TypeDiff": "change",
	"DNSClaim": "explain", "DNSName": "explain", "DNSPort": "explain", "FlowLog": "explain", "FlowPolicy": "explain",
	"InForce": "explain", "Permit": "explain", "Ref": "explain",
	"Blame": "xds", "Event": "xds", "HeldResource": "xds", "NACK": "xds", "ProxyStatus": "xds", "Refusals": "xds",
	"TypeStatus": "xds",
}

var goLink = regexp.MustCompile(`\[(?:[a-z]+\.)?([A-Z]\w*)\]`)

// of returns the schema of the type of a value, or of a media type.
func (b *specification) of(v any) *schema {
	switch v := v.(type) {
	case nil:
		return nil
	case string:
		return &schema{media: v}
	case explanation:
		return &schema{oneOf: []*schema{b.of(explain.Policy{}), b.of(explain.Flow{}), b.of(explaindns.DNS{})}}
	}
	return b.typed(reflect.TypeOf(v))
}
