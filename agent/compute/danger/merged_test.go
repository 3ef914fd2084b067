package danger_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/nearside-mesh/nearside/agent/base/jsonpatch"
	"github.com/nearside-mesh/nearside/agent/compute/danger"
)

// generator generates random patches from Envoy's message types.
type generator struct{ *rand.Rand }

// packedTypes are the types of generated packed messages.
var packedTypes = []string{
	"extensions.filters.network.http_connection_manager.v3.HttpConnectionManager", "extensions.filters.http.lua.v3.Lua",
	"extensions.access_loggers.file.v3.FileAccessLog", "extensions.transport_sockets.tls.v3.UpstreamTlsContext",
	"extensions.filters.http.router.v3.Router", "extensions.filters.network.tcp_proxy.v3.TcpProxy",
	"extensions.filters.http.ext_authz.v3.ExtAuthz", "extensions.filters.http.tap.v3.Tap",
	"extensions.filters.http.grpc_json_transcoder.v3.GrpcJsonTranscoder", "config.route.v3.FilterConfig",
}

func (g generator) packed() (string, protoreflect.MessageDescriptor) {
	name := "envoy." + packedTypes[g.IntN(len(packedTypes))]
	mt, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName(name))
	if err != nil {
		panic(err)
	}
	return "type.googleapis.com/" + name, mt.Descriptor()
}

// name returns a name of a field in one of its forms.
func (g generator) name(fd protoreflect.FieldDescriptor) string {
	if g.IntN(2) == 0 {
		return string(fd.Name())
	}
	return fd.JSONName()
}

// message returns a random message.
func (g generator) message(md protoreflect.MessageDescriptor, depth int) any {
	out := map[string]any{}
	switch name := md.FullName(); {
	case name == "google.protobuf.Any":
		url, inner := g.packed()
		if fields, ok := g.message(inner, depth-1).(map[string]any); ok {
			out = fields
		}
		out["@type"] = url
		return out
	case name == "google.protobuf.Struct":
		return map[string]any{"path": "/tmp/x", "pipe": map[string]any{"path": "/tmp/x"}, "filename": "/tmp/x"}
	case name == "google.protobuf.Duration":
		return "1s"
	case strings.HasPrefix(string(name), "google.protobuf."):
		return nil
	}
	for range 2 {
		fd := md.Fields().Get(g.IntN(max(md.Fields().Len(), 1)))
		if o := fd.ContainingOneof(); o != nil {
			for i := range o.Fields().Len() {
				delete(out, o.Fields().Get(i).JSONName())
				delete(out, string(o.Fields().Get(i).Name()))
			}
		}
		if v := g.field(fd, depth); v != nil {
			out[g.name(fd)] = v
		}
		if md.Fields().Len() < 2 {
			break
		}
	}
	return out
}

// field returns a random value of a field; nil for none.
func (g generator) field(fd protoreflect.FieldDescriptor, depth int) any {
	var v any
	of := fd
	if fd.IsMap() {
		of = fd.MapValue()
	}
	switch {
	case of.Message() != nil && depth <= 0:
		return nil
	case of.Message() != nil && of.Message().Fields().Len() > 0:
		v = g.message(of.Message(), depth-1)
	case of.Kind() == protoreflect.StringKind:
		v = "/tmp/x"
	case of.Kind() == protoreflect.BytesKind:
		v = "eA=="
	case of.Kind() == protoreflect.BoolKind:
		v = true
	case of.Kind() == protoreflect.EnumKind:
		v = string(of.Enum().Values().Get(0).Name())
	case of.Message() == nil:
		v = 1
	}
	switch {
	case v == nil:
		return nil
	case fd.IsMap():
		return map[string]any{"k": v}
	case fd.IsList():
		return []any{v}
	}
	return v
}

// path returns a random pointer, and the value of a place there. It prefers places in a document.
func (g generator) path(md protoreflect.MessageDescriptor, doc any, depth int) (string, any) {
	var out strings.Builder
	for ; ; depth-- {
		if md.FullName() == "google.protobuf.Any" {
			o, _ := doc.(map[string]any)
			url, _ := o["@type"].(string)
			mt, err := protoregistry.GlobalTypes.FindMessageByURL(url)
			if err != nil || g.IntN(8) == 0 {
				url, _ := g.packed()
				return out.String() + "/@type", url
			}
			md = mt.Descriptor()
		}
		if md.Fields().Len() == 0 || strings.HasPrefix(string(md.FullName()), "google.protobuf.") {
			return out.String() + "/k", "/tmp/x"
		}
		fd := md.Fields().Get(g.IntN(md.Fields().Len()))
		o, _ := doc.(map[string]any)
		if len(o) > 0 && g.IntN(3) > 0 { // a field that the document has
			for _, name := range slices.Sorted(maps(o)) {
				if has := md.Fields().ByJSONName(name); has != nil && g.IntN(2) == 0 {
					fd = has
				}
			}
		}
		doc = o[fd.JSONName()]
		fmt.Fprintf(&out, "/%s", g.name(fd))
		value := g.field(fd, 4)
		if fd.IsList() && g.IntN(3) > 0 {
			out.WriteString([]string{"/0", "/-"}[g.IntN(2)])
			list, _ := doc.([]any)
			if doc = nil; len(list) > 0 {
				doc = list[0]
			}
			if items, ok := value.([]any); ok {
				value = items[0]
			}
		} else if fd.IsList() || fd.IsMap() {
			return out.String(), value
		}
		if fd.Message() == nil || fd.IsMap() || depth <= 0 || g.IntN(4) == 0 {
			return out.String(), value
		}
		md = fd.Message()
	}
}

func maps(o map[string]any) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range o {
			if !yield(k) {
				return
			}
		}
	}
}

// patchedBases are the documents that random patches change.
var patchedBases = []struct {
	target string
	empty  func() proto.Message
	text   string
}{
	{"cluster", func() proto.Message { return &clusterv3.Cluster{} },
		`{"name":"a","connectTimeout":"1s","metadata":{"filterMetadata":{"x":{"path":"/tmp/x"}}},
		"loadAssignment":{"clusterName":"a","endpoints":[{"lbEndpoints":[{"endpoint":{"address":{"socketAddress":{"address":"192.0.2.1","portValue":1}}}}]}]},
		"transportSocket":{"name":"tls","typedConfig":{"@type":"type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext","commonTlsContext":{}}}}`},
	{"listener", func() proto.Message { return &listenerv3.Listener{} },
		`{"name":"a","metadata":{"filterMetadata":{"x":{"pipe":{"path":"/tmp/x"}}}},
		"filterChains":[{"filters":[{"name":"hcm","typedConfig":{"@type":"type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
		"statPrefix":"a","routeConfig":{"virtualHosts":[{"name":"a","domains":["*"],"routes":[{"match":{"path":"/x"},"directResponse":{"status":200,"body":{"inlineString":"/tmp/x"}}}]}]},
		"httpFilters":[{"name":"r","typedConfig":{"@type":"type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}],
		"accessLog":[{"name":"f","typedConfig":{"@type":"type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog","path":"/run/nearside/fifo"}}]}}]}]}`},
}

// TestMergedPatches applies random JSON Patches to messages. If the result has a dangerous field
// that the message did not have, the patch must need the feature.
func TestMergedPatches(t *testing.T) {
	rounds := 5_000
	if testing.Short() {
		rounds = 1_000
	}
	g := generator{rand.New(rand.NewPCG(36, 20))}
	valid, dangerous, flagged := 0, 0, 0
	for range rounds {
		base := patchedBases[g.IntN(len(patchedBases))]
		before := base.empty()
		if err := protojson.Unmarshal([]byte(base.text), before); err != nil {
			t.Fatal(err)
		}
		doc, err := jsonpatch.Decode([]byte(base.text))
		if err != nil {
			t.Fatal(err)
		}
		var operations jsonpatch.Patch
		var lines []string
		for range 1 + g.IntN(3) {
			path, value := g.path(before.ProtoReflect().Descriptor(), doc, 12)
			op := jsonpatch.Operation{Op: jsonpatch.Add, Path: path, Value: value}
			line := map[string]any{"op": op.Op, "path": path, "value": value}
			if value == nil || g.IntN(4) == 0 {
				op.From, _ = g.path(before.ProtoReflect().Descriptor(), doc, 12)
				op.Op, op.Value = jsonpatch.Copy, nil
				line = map[string]any{"op": op.Op, "path": path, "from": op.From}
			}
			text, err := json.Marshal(line)
			if err != nil {
				t.Fatal(err)
			}
			operations, lines = append(operations, op), append(lines, "- "+string(text))
		}
		r, err := registry.DecodeOne([]byte(ops(base.target, "origin: inbound", strings.Join(lines, "\n"))))
		if err != nil {
			continue
		}
		for i := range operations { // as the kind does: the names of the JSON form
			operations[i].Path, operations[i].From = jsonNames(operations[i].Path), jsonNames(operations[i].From)
		}
		result, err := operations.ApplyWith(doc, jsonpatch.Options{CreateParents: true, IgnoreAbsent: true})
		if err != nil {
			continue
		}
		text, err := json.Marshal(result)
		after := base.empty()
		if err != nil || protojson.Unmarshal(text, after) != nil {
			continue
		}
		valid++
		found, had := danger.Of(r), danger.SinksIn(before)
		if len(found) > 0 {
			flagged++
		}
		for _, s := range danger.SinksIn(after) {
			if slices.Contains(had, s) {
				continue
			}
			dangerous++
			if len(found) == 0 {
				t.Fatalf("%s is not found in\n%s", s, strings.Join(lines, "\n"))
			}
			break
		}
	}
	t.Logf("%d valid patches, %d with a danger, %d found", valid, dangerous, flagged)
	if valid < rounds/20 || dangerous < rounds/200 {
		t.Errorf("only %d of %d patches are valid, and %d have a danger", valid, rounds, dangerous)
	}
}

// jsonNames converts the names of fields in a pointer to their JSON form.
func jsonNames(pointer string) string {
	var out strings.Builder
	upper := false
	for _, c := range pointer {
		switch {
		case c == '_':
			upper = true
		case upper:
			out.WriteString(strings.ToUpper(string(c)))
			upper = false
		default:
			out.WriteRune(c)
		}
	}
	return out.String()
}
