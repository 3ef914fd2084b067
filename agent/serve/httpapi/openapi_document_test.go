package httpapi_test

import (
	"bytes"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/nearside-mesh/nearside/agent/answer/explain"
	"github.com/nearside-mesh/nearside/agent/answer/explaindns"
	"github.com/nearside-mesh/nearside/agent/model/api"
)

// document is the whole, as OpenAPI 3.1.
func (b *specification) document() []byte {
	b.of(api.Error{})
	b.of(api.Item{})
	for _, data := range []any{api.Hello{}, api.ChangeEvent{}, api.ProxyEvent{}, api.AckEvent{}, api.NackEvent{},
		api.ProblemEvent{}, api.Lost{}, api.End{}} {
		b.of(data)
	}
	paths := map[string]map[string]*yaml.Node{}
	for key, op := range operations {
		method, path, _ := strings.Cut(key, " ")
		path = strings.TrimSuffix(path, "{$}")
		if paths[path] == nil {
			paths[path] = map[string]*yaml.Node{}
		}
		paths[path][strings.ToLower(method)] = b.operation(path, op)
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
			"identifier", "Apache-2.0"), "description", "The HTTP API of the agent, on its unix socket and, where api.tcp is "+
			"set, over TCP. docs/api.md says what the documents mean. Fields are added, never renamed or removed."),
		"servers", sequence(mapping("url", "http://localhost",
			"description", "over the unix socket: curl --unix-socket /run/nearside/nearside.sock http://localhost/")),
		"security", sequence(mapping(), mapping("token", sequence())),
		"paths", list,
		"components", mapping("securitySchemes", mapping("token", mapping("type", "http", "scheme", "bearer", "description",
			"Over TCP. On the unix socket the kernel says who asks.")), "schemas", schemas))
	var out bytes.Buffer
	out.WriteString("# Made by the test TestOpenAPI of agent/inspect; make golden writes it anew.\n")
	e := yaml.NewEncoder(&out)
	e.SetIndent(2)
	if err := e.Encode(root); err != nil {
		b.t.Fatal(err)
	}
	return out.Bytes()
}

var inPath = regexp.MustCompile(`{([a-z]+)}`)

func (b *specification) operation(path string, op operation) *yaml.Node {
	params := sequence()
	for _, m := range inPath.FindAllStringSubmatch(path, -1) {
		add(params, "", mapping("name", m[1], "in", "path", "required", true, "schema", mapping("type", "string")))
	}
	for _, p := range strings.Fields(op.query) {
		typ := "string"
		switch p {
		case "size", "offset", "seconds":
			typ = "integer"
		case "shadow", "computed", "dryRun", "meta", "allNodes", "gateway", "ingress":
			typ = "boolean"
		}
		of := mapping("type", typ)
		if p == "tag" || p == "delete" {
			of = mapping("type", "array", "items", mapping("type", "string"))
		}
		add(params, "", mapping("name", p, "in", "query", "description", parameters[p], "schema", of))
	}
	for _, p := range strings.Fields(op.headers) {
		add(params, "", mapping("name", p, "in", "header", "description", parameters[p], "schema", mapping("type", "string")))
	}
	out := mapping("operationId", op.id, "summary", op.does)
	if len(params.Content) > 0 {
		add(out, "parameters", params)
	}
	if op.body != nil {
		add(out, "requestBody", mapping("required", op.id != "diff", "content", content(b.of(op.body))))
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
		if op.id == "ready" || op.id == "live" {
			add(responses, "503", mapping("description", "Not so; the document says why.", "content", content(s)))
		}
	}
	add(responses, "default", mapping("description", "A problem (RFC 9457).",
		"content", mapping("application/problem+json", mapping("schema", (&schema{ref: "Error"}).node()))))
	add(out, "responses", responses)
	return out
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
