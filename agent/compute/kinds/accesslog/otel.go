package accesslog

import (
	"encoding/json"
	"fmt"
	"net"
	"path"
	"strconv"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	otlpv1 "go.opentelemetry.io/proto/otlp/common/v1"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/compute/substitution"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// maxAttributes limits the attributes of a record.
const maxAttributes = 128

func (o *OTel) validate(v *resource.Validator) {
	toolkit.CheckOTel(v, o.Endpoint, o.BackendRef)
	if toolkit.AtMost(v.Field("attributes"), len(o.Attributes), maxAttributes, "attributes") {
		seen := map[string]int{}
		for i, a := range o.Attributes {
			at := v.Field("attributes").Index(i)
			if first, ok := seen[a.Key]; ok {
				at.Field("key").Faultf("%q is already the key of attributes[%d]: give another key",
					toolkit.Clip(a.Key), first)
			} else if a.Key == "" {
				at.Field("key").Faultf("the key is missing")
			}
			seen[a.Key] = i
			parse(at.Field("value"), a.Value)
		}
	}
	if o.Body != nil {
		readBody(v.Field("body"), o.Body.JSON)
	}
}

// anyValue is an OTLP AnyValue of a type that Envoy supports: a text, a list, or named fields.
type anyValue struct {
	text   []substitution.Segment
	list   []anyValue // non-nil for a list
	fields []anyField // non-nil for fields
}

type anyField struct {
	key   string
	value anyValue
}

// readBody parses a body: a format string, or an AnyValue in JSON form.
func readBody(v *resource.Validator, raw json.RawMessage) anyValue {
	if s, ok := str(raw); ok {
		return anyValue{text: parse(v, s)}
	}
	return readAny(v, raw)
}

// readAny parses an AnyValue in protobuf's JSON form, with names in either spelling.
func readAny(v *resource.Validator, raw json.RawMessage) anyValue {
	fields, ok := object(raw)
	if !ok || len(fields) != 1 {
		v.Faultf("a value must be one of {stringValue: …}, {arrayValue: {values: […]}}, " +
			"and {kvlistValue: {values: [{key: …, value: …}]}}")
		return anyValue{}
	}
	for name, inner := range fields {
		at := v.Field(toolkit.Clip(name))
		switch name {
		case "stringValue", "string_value":
			s, ok := str(inner)
			if !ok {
				at.Faultf("a string is required: use quotes")
			}
			return anyValue{text: parse(at, s)}
		case "arrayValue", "array_value":
			out := anyValue{list: []anyValue{}}
			for i, item := range valuesIn(at, inner) {
				out.list = append(out.list, readAny(at.Field("values").Index(i), item))
			}
			return out
		case "kvlistValue", "kvlist_value":
			out := anyValue{fields: []anyField{}}
			for i, item := range valuesIn(at, inner) {
				out.fields = append(out.fields, readAnyField(at.Field("values").Index(i), item))
			}
			return out
		case "boolValue", "bool_value", "intValue", "int_value", "doubleValue", "double_value", "bytesValue", "bytes_value":
			at.Faultf("Envoy supports only strings, lists, and fields: use stringValue")
		default:
			at.Faultf("unknown field; known fields: stringValue, arrayValue, kvlistValue")
		}
	}
	return anyValue{}
}

// valuesIn parses {values: […]}.
func valuesIn(v *resource.Validator, raw json.RawMessage) []json.RawMessage {
	fields, ok, _ := members(v, raw, "{values: […]}", "values")
	items, isList := list(fields["values"])
	if ok && !isList && fields["values"] != nil {
		v.Field("values").Faultf("a list is required")
	}
	return items
}

func readAnyField(v *resource.Validator, raw json.RawMessage) anyField {
	fields, ok, _ := members(v, raw, "{key: …, value: …}", "key", "value")
	if !ok {
		return anyField{}
	}
	key, _ := str(fields["key"])
	if key == "" {
		v.Field("key").Faultf("the key is missing")
	}
	return anyField{key: key, value: readAny(v.Field("value"), fields["value"])}
}

const (
	nameOTel = "envoy.access_loggers.open_telemetry"
	logName  = "MeshAccessLog"
	origin   = "mesh-access-log" // for matching by patches
)

// record is the format of an entry of an OpenTelemetry logger.
type record struct {
	cluster    string
	route      string // identifies the records to the agent; "" if they go directly to the collector
	newer      bool   // Envoy 1.37 or newer
	body       anyValue
	attributes []anyField
}

// readRecord parses a valid conf. text is the default body.
func (o *OTel) readRecord(text []substitution.Segment) record {
	var none []resource.Fault
	v := resource.NewValidator("", &none)
	r := record{body: anyValue{text: text}}
	if o.Body != nil {
		r.body = readBody(v, o.Body.JSON)
	}
	for _, a := range o.Attributes {
		r.attributes = append(r.attributes, anyField{a.Key, anyValue{text: parse(v, a.Value)}})
	}
	return r
}

// template returns all texts of a record as a template, for analysis.
func (r *record) template() template {
	t := template{json: true}
	t.add(&r.body)
	for i := range r.attributes {
		t.add(&r.attributes[i].value)
	}
	return t
}

func (t *template) add(a *anyValue) {
	t.values = append(t.values, a.text)
	for i := range a.list {
		t.add(&a.list[i])
	}
	for i := range a.fields {
		t.add(&a.fields[i].value)
	}
}

// resourceAttributes identifies the proxy, as in Kuma.
func resourceAttributes(v *values) *otlpv1.KeyValueList {
	out := &otlpv1.KeyValueList{}
	for _, a := range (toolkit.Workload{Mesh: v.mesh, Zone: v.zone, Name: v.workload}).Attributes() {
		out.Values = append(out.Values, &otlpv1.KeyValue{Key: a[0],
			Value: &otlpv1.AnyValue{Value: &otlpv1.AnyValue_StringValue{StringValue: a[1]}}})
	}
	return out
}

func (a *anyValue) message(v *values) *otlpv1.AnyValue {
	switch {
	case a.fields != nil:
		return &otlpv1.AnyValue{Value: &otlpv1.AnyValue_KvlistValue{KvlistValue: messages(a.fields, v)}}
	case a.list != nil:
		out := &otlpv1.ArrayValue{}
		for i := range a.list {
			out.Values = append(out.Values, a.list[i].message(v))
		}
		return &otlpv1.AnyValue{Value: &otlpv1.AnyValue_ArrayValue{ArrayValue: out}}
	}
	return &otlpv1.AnyValue{Value: &otlpv1.AnyValue_StringValue{StringValue: string(substitution.AppendFormat(nil,
		a.text, v.of))}}
}

func messages(fields []anyField, v *values) *otlpv1.KeyValueList {
	out := &otlpv1.KeyValueList{}
	for i := range fields {
		out.Values = append(out.Values, &otlpv1.KeyValue{Key: fields[i].key, Value: fields[i].value.message(v)})
	}
	return out
}

// maxSocketPath limits the path of a Unix socket (sun_path of unix(7), including the terminator).
const maxSocketPath = 107

// collector returns the connection to a collector, and adds its cluster to the config once. Envoy
// rejects a logger with an unknown cluster; clusters are sent before listeners. As in Kuma, the
// collectors of a proxy are numbered.
//
// The cluster leads to the agent's socket, and the authority identifies the collector. The agent
// buffers the records while the collector is unavailable, and sends them by the collector's
// protocol. If the socket's path is too long, the cluster leads directly to the collector, and the
// path is "".
func (w *writer) collector(owner resource.Key, backend string, at toolkit.OTLP) draft.Pipe {
	if w.collectors == nil {
		w.collectors = map[toolkit.OTLP]int{}
		quiet := resolver{c: w.c}
		quiet.eachRule(func(rule *policy.Rule, list string) {
			for _, s := range quiet.sinks(rule, list) {
				if s.kind != sinkOTel {
					continue
				}
				if _, known := w.collectors[s.otlp]; !known {
					w.collectors[s.otlp] = len(w.collectors)
				}
			}
		})
	}
	name := fmt.Sprintf("meshaccesslog:opentelemetry:%d", w.collectors[at])
	direct := toolkit.HostCluster(name, origin, at.Collector, w.proxy.address)
	direct.HTTP = draft.HTTP2Options
	cluster := direct
	p := draft.Pipe{Cluster: name}
	sealed, err := direct.Seal()
	if socket := path.Join(w.c.Paths.RunDir(), "otlp.sock"); err == nil && len(socket) <= maxSocketPath {
		p.Path, p.Kind, p.Target = socket, draft.PipeOTLP, net.JoinHostPort(at.Host, strconv.FormatUint(uint64(at.Port), 10))
		p.Backend, p.Policy, p.Direct = backend, owner, sealed
		if at.HTTP { // Envoy speaks gRPC, so only the agent can reach this collector
			p.Target, p.Direct = at.URL("logs"), nil
		}
		p.Route = hashOf(w.c.Proxy().Key.Mesh, w.c.Proxy().Key.Name, p.Target) + ".otlp.nearside"
		cluster = toolkit.StaticCluster(name, origin,
			&corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: socket}}})
		cluster.HTTP = draft.HTTP2Options
		cluster.Message.CircuitBreakers = &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{{
			MaxRetries: wrapperspb.UInt32(maxWaiting)}}}
	}
	if w.c.Host.Claim(draft.TypeCluster, name) {
		w.d.Clusters = append(w.d.Clusters, cluster)
	}
	return p
}
