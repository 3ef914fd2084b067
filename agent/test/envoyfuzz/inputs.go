package envoyfuzz

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/nearside-mesh/nearside/agent/compute/envoy"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Input is one random change of a config.
type Input struct {
	Group, What string
	Policy      string          // the changed policy document; empty for a change of the config itself
	Base        *envoy.Snapshot // nil for a policy
	Config      *envoy.Snapshot // the changed config; nil if it cannot be decoded
}

// New returns a random change of one of the configs. If group is not empty, it is the group of the
// change. For the same random numbers the value of a change does not depend on the configs.
func New(r *rand.Rand, bases []*envoy.Snapshot, group string) Input {
	for range 100 {
		var x *Input
		switch k := r.IntN(10); {
		case k < 5 && group != "" && !slices.Contains([]string{"policies", "fields", "durations", "refused"}, group):
		case k < 2:
			x = policyInput(r)
		case k < 5:
			x = fieldInput(r, bases)
		default:
			x = snippetInput(r, bases)
		}
		if x != nil && (group == "" || x.Group == group) {
			return *x
		}
	}
	return Input{Group: "none"}
}

// snippetInput merges a value into a part of a config, like a MeshProxyPatch.
func snippetInput(r *rand.Rand, bases []*envoy.Snapshot) *Input {
	s := pick(r, snippets...)
	text := fill(r, s.value)
	base := bases[0]
	if r.IntN(3) == 0 {
		base = pick(r, bases...)
	}
	list := resources(base)
	var failed error
	name := protoreflect.FullName(s.target)
	filter := name == "HttpFilter"
	if filter {
		name = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
	}
	ok := editOne(r, list, func(m protoreflect.Message) bool { return m.Descriptor().FullName() == name },
		func(m protoreflect.Message) {
			if filter {
				f := &hcmv3.HttpFilter{Name: "odd"}
				failed = fromJSON(f, `{"name":"odd","typedConfig":`+text+`}`)
				hcm := m.Interface().(*hcmv3.HttpConnectionManager)
				hcm.HttpFilters = slices.Insert(hcm.HttpFilters, 0, f)
				return
			}
			piece := m.New().Interface()
			if failed = fromJSON(piece, text); failed == nil {
				for i := range m.Descriptor().Oneofs().Len() { // the new choice replaces the current one
					o := m.Descriptor().Oneofs().Get(i)
					if piece.ProtoReflect().WhichOneof(o) != nil && m.WhichOneof(o) != nil {
						m.Clear(m.WhichOneof(o))
					}
				}
				proto.Merge(m.Interface(), piece)
			}
		})
	if !ok {
		return nil
	}
	if failed != nil { // patches with this value are refused
		return &Input{Group: "refused", What: s.target + " " + text + ": " + failed.Error()}
	}
	return &Input{Group: s.group, What: string(name[strings.LastIndexByte(string(name), '.')+1:]) + " " + text,
		Base: base, Config: sealed(list)}
}

// fieldInput sets a random field to an unusual value.
func fieldInput(r *rand.Rand, bases []*envoy.Snapshot) *Input {
	base := pick(r, bases...)
	list := resources(base)
	x := &Input{Group: "fields", Base: base}
	type odd struct {
		field protoreflect.FieldDescriptor
		value *protoreflect.Value
	}
	fits := func(m protoreflect.Message) bool {
		n := string(m.Descriptor().FullName())
		return strings.HasPrefix(n, "envoy.") && !strings.HasPrefix(n, "envoy.config.core.v3.ConfigSource") &&
			!strings.HasPrefix(n, "envoy.extensions.transport_sockets.tls.v3.Secret") && !strings.HasPrefix(n,
			"envoy.extensions.transport_sockets.tls.v3.Sds") && !strings.HasPrefix(n, "envoy.config.core.v3.Metadata") &&
			!strings.HasPrefix(n, "envoy.extensions.access_loggers.file") && !strings.HasPrefix(n,
			"envoy.config.core.v3.ApiConfig") && !strings.HasPrefix(n, "envoy.config.core.v3.DataSource") &&
			!strings.HasPrefix(n, "envoy.config.cluster.v3.Cluster.EdsClusterConfig")
	}
	ok := editOne(r, list, fits, func(m protoreflect.Message) {
		var list []odd
		all := m.Descriptor().Fields()
		for i := range all.Len() {
			if v := oddValues(r, all.Get(i), m); v != nil {
				list = append(list, odd{all.Get(i), v})
			}
		}
		if len(list) == 0 {
			return
		}
		one := pick(r, list...)
		f, v := one.field, one.value
		x.What = fmt.Sprintf("%s = %v", f.FullName(), v.Interface())
		if f.Message() != nil {
			x.What = fmt.Sprintf("%s = {%v}", f.FullName(), v.Message().Interface())
		}
		if f.Message() != nil {
			x.Group = "durations"
			if f.Message().FullName() != "google.protobuf.Duration" {
				x.Group = "fields"
			}
		}
		m.Set(f, *v)
	})
	if !ok || x.What == "" {
		return nil
	}
	x.Config = sealed(list)
	return x
}

// oddValues returns an unusual value for a field, or nil for unsupported fields.
func oddValues(r *rand.Rand, f protoreflect.FieldDescriptor, m protoreflect.Message) *protoreflect.Value {
	var v protoreflect.Value
	if f.IsList() || f.IsMap() || f.Name() == "leds_cluster_locality_config" || f.Name() == "stats_matcher" ||
		strings.HasSuffix(string(f.Name()), "_name") && f.Kind() == protoreflect.StringKind || f.Name() == "name" {
		return nil
	}
	switch f.Kind() {
	case protoreflect.BoolKind:
		v = protoreflect.ValueOfBool(r.IntN(2) == 0)
	case protoreflect.Uint32Kind:
		v = protoreflect.ValueOfUint32(pick[uint32](r, 0, 1, 7, 100, 101, 128, 129, 65535, 65536, 1<<31, 1<<32-1))
	case protoreflect.Uint64Kind:
		v = protoreflect.ValueOfUint64(pick[uint64](r, 0, 1, 100, 1<<32, 1<<63))
	case protoreflect.EnumKind:
		n := f.Enum().Values().Len()
		v = protoreflect.ValueOfEnum(f.Enum().Values().Get(r.IntN(n)).Number())
	case protoreflect.StringKind:
		v = protoreflect.ValueOfString(pick(r, "", "odd", "a b", "%DURATION%", "%NO%", "10.0.0.1", "*", "/a", "x-a:b", "é"))
	case protoreflect.MessageKind:
		one := m.NewField(f).Message()
		name := one.Descriptor().FullName()
		value := one.Descriptor().Fields().ByName("value")
		switch {
		case name == "google.protobuf.Duration":
			if fromJSON(one.Interface(), `"`+oddDuration(r)+`"`) != nil {
				return nil
			}
		case strings.HasPrefix(string(name), "google.protobuf.") && strings.HasSuffix(string(name), "Value") &&
			value != nil && value.Message() == nil:
			inner := oddValues(r, value, one)
			if inner == nil {
				return nil
			}
			one.Set(value, *inner)
		case strings.HasPrefix(string(name), "envoy.") && r.IntN(4) == 0: // an empty message
		default:
			return nil
		}
		v = protoreflect.ValueOfMessage(one)
	default:
		return nil
	}
	return &v
}

func oddDuration(r *rand.Rand) string {
	return pick(r, "0s", "0.000000001s", "0.0005s", "0.001s", "0.999999999s", "1s", "60s", "86400s", "31536000s",
		"4294967s", "4294968s", "2147483647s", "4294967295s",
		"9223372036s", "9223372035s", "9223372035.999s", "9223372037s", "315576000000s", "-1s")
}

// policyInput returns a policy with unusual values.
func policyInput(r *rand.Rand) *Input {
	text := fill(r, pick(r, policies...))
	x := &Input{Group: "policies", What: strings.Join(strings.Fields(text), " "), Policy: text}
	rs, faults := kinds.Registry().Decode("a.yaml", []byte(Mesh+"\n---\n"+text))
	if len(faults) > 0 {
		x.Group = "refused"
		return x
	}
	m, err := generate.NewMesh(resource.NewSet(rs), "default", mesh.Options{}, kinds.Plugins(), policy.Options{}, nil)
	if err != nil {
		return nil
	}
	p, err := generate.Generate(generate.Input{Mesh: m, Name: pick(r, "web", "backend"), Flavor: node.FlavorEnvoy}, nil,
		nil)
	if err != nil {
		return nil
	}
	x.Config = p.Snapshot()
	return x
}

// fill replaces the placeholders of a text by unusual values.
func fill(r *rand.Rand, text string) string {
	for {
		head, rest, found := strings.Cut(text, "{{")
		if !found {
			return text
		}
		kind, tail := placeholder(rest)
		text = head + oddText(r, kind) + tail
	}
}

func oddText(r *rand.Rand, kind string) string {
	if list := choices(kind); len(list) > 1 {
		return pick(r, list...)
	}
	switch kind {
	case "dur":
		return oddDuration(r)
	case "godur":
		return pick(r, "0s", "1ns", "999us", "1ms", "5s", "1h", "23h", "8760h", "8761h", "100000h", "2562047h", "-1s")
	case "u32":
		return pick(r, "0", "1", "2", "63", "64", "100", "101", "1000", "65535", "65536", "4294967295")
	case "format":
		return pick(r, "plain", "", "%%", "%DURATION%", "%PATH(FOO)%", "%PATH(NQ)%", "%PATH(WQ:ORIG)%", "%REQ(x)%",
			"%REQ(:authority)%", "%REQ(x?y?z)%", "%REQ()%", "%REQ(x):5%", "%BAD%", "100%", "%START_TIME(%s)%",
			"%START_TIME(%n)%",
			"%DYNAMIC_METADATA(a:b)%", "%DYNAMIC_METADATA(a:b):5%", "%CLUSTER_METADATA(a:b):5%", "%FILTER_STATE(a:PLAIN)%",
			"%FILTER_STATE(a:ODD)%", "%ENVIRONMENT(HOME)%", "%COMMON_DURATION(DS_RX_BEG:DS_RX_END:ms)%",
			"%COMMON_DURATION(DS_RX_BEG:DS_RX_END:xx)%",
			"%CEL(request.path)%", "%CEL(request.)%", "%METADATA(ROUTE:a:b)%", "%METADATA(ODD:a:b)%", "%METADATA(CLUSTER:a)%",
			"%METADATA(LISTENER:a)%", "%QUERY_PARAM(a)%", "%QUERY_PARAMS%", "%QUERY_PARAMS(RAW)%", "%TRACE_ID%", "%SPAN_ID%",
			"%PROTOCOL()%", "%REQUEST_HEADER(x)%", "%RESPONSE_HEADER(x)%",
			"%UPSTREAM_LOCAL_SUBJECT%", "%DOWNSTREAM_TLS_GROUP%", "%UPSTREAM_HOSTS_ATTEMPTED%",
			"%DOWNSTREAM_DETECTED_CLOSE_TYPE%", "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT(8)%",
			"%GRPC_STATUS(CAMEL_STRING)%", "%GRPC_STATUS(BAD)%", "%REQ_WITHOUT_QUERY(x)%", "%HOSTNAME%",
			"%DATASOURCE(x)%", "%XFCC_VALUE(URI)%", "%UNIQUE_ID%", "%RESPONSE_CODE_DETAILS(x)%", "%LISTENER_METADATA(a:b)%",
			"%SECRET(x)%", "%FILE_CONTENT(/x)%", "%COALESCE({})%", `%REQ(\n)%`, "%TRAILER(a)%", "%RESP(a):x%")
	case "regex":
		return pick(r, "a.*", "(", `\\Qa`, `\\Qa\\E`, `a{1001}`, `a{1000}`, `(?=a)`, `\\p{Greek}`, `\\x{100}`, `\\x{ff}`, `é`,
			`(?i)a`, `\\C`, `(?P<n>a)`, `(?<n>a)`, `[[:alpha:]]`, `\\pN`, `[a`, `a**`, `(?P<n>a)(?P<n>b)`, `\\8`, `\\z`, `\\Z`,
			`x{2,1}`, ``, `(?U)a+`)
	case "addr":
		return pick(r, "127.0.0.1", "10.0.0.1", "::1", "::ffff:10.0.0.1", "0.0.0.0", "::", "example.com", "1.2.3",
			"fe80::1%eth0", "010.0.0.1", "[::1]", "1.2.3.4/8")
	case "cidr":
		return pick(r, `{"addressPrefix":"10.0.0.0","prefixLen":8}`, `{"addressPrefix":"10.0.0.0","prefixLen":33}`,
			`{"addressPrefix":"::","prefixLen":0}`, `{"addressPrefix":"x","prefixLen":8}`,
			`{"addressPrefix":"::ffff:10.0.0.1","prefixLen":120}`,
			`{"addressPrefix":"10.0.0.1"}`, `{"addressPrefix":"::1","prefixLen":129}`)
	case "cluster":
		return pick(r, "backend", "gone")
	case "lua":
		return pick(r, luaScripts...)
	case "pct":
		return pick(r, `{"numerator":50}`, `{"numerator":101}`, `{"numerator":1000001,"denominator":"MILLION"}`,
			`{"numerator":0}`)
	case "dpct":
		return pick(r, `{"value":50}`, `{"value":101}`, `{"value":-1}`, `{"value":100}`)
	case "header":
		return pick(r, "x-a", "X-A", ":path", ":authority", "host", "Host", "a b", "a:b", "é", "content-length", ":x",
			"x_y", "connection", "a\\tb")
	case "headeropt":
		return `{"header":{"key":"{{header}}","value":"{{format}}"}}`
	case "text":
		return pick(r, "", "a", "a b", "é", "*")
	case "ext": // any extension
		return `{"name":"odd","typedConfig":` + pick(r, extensions...) + `}`
	case "any":
		return pick(r, extensions...)
	case "string":
		return pick(r, `{"exact":"a"}`, `{"prefix":""}`, `{"prefix":"a"}`, `{"safeRegex":{"regex":"{{regex}}"}}`,
			`{"contains":"a"}`, `{"suffix":"a"}`, `{}`, `{"custom":{{ext}}}`)
	case "grpc":
		return pick(r, `{"envoyGrpc":{"clusterName":"{{cluster}}"},"timeout":"{{dur}}"}`,
			`{"envoyGrpc":{"clusterName":"{{cluster}}","authority":"{{text}}"}}`,
			`{"googleGrpc":{"targetUri":"x","statPrefix":"x"}}`, `{}`)
	case "rt":
		return pick(r, `{"defaultValue":{{pct}},"runtimeKey":"x"}`, `{"defaultValue":{{pct}}}`)
	}
	return kind
}

// placeholder splits the text after an opening {{ at the matching }}.
func placeholder(text string) (kind, tail string) {
	depth := 2
	for i, c := range text {
		switch c {
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return text[:i-1], text[i+1:]
			}
		}
	}
	return text, ""
}

// choices splits a text at vertical bars outside braces.
func choices(text string) []string {
	var out []string
	depth, from := 0, 0
	for i, c := range text {
		switch {
		case c == '{':
			depth++
		case c == '}':
			depth--
		case c == '|' && depth == 0:
			out, from = append(out, text[from:i]), i+1
		}
	}
	return append(out, text[from:])
}
