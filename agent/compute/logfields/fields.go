package logfields

import (
	"fmt"
	"slices"
	"strings"
)

// State says whether the value of a field is known.
type State uint8

// States of a value.
const (
	Absent State = iota // no format of the line has the field
	Hidden              // the format has the field where clients can shift it
	Unsure              // several values are possible, because the line imitates its format
	Known
)

// Field is a field of access log lines.
type Field struct {
	Name string

	operators []string // of formats, in upper case, in order of preference
	keys      []string // of JSON lines without a known format
	all       bool     // all keys must have the same value
	own       bool     // the keys take precedence over known formats
}

// Names of fields with a special meaning.
const (
	Time     = "time"
	Status   = "status"
	Duration = "duration" // in milliseconds
	Service  = "service"
	Route    = "route"
	Path     = "path"
	Client   = "client"
	Sent     = "sent"
	Received = "received"
)

// known lists the fields with short names. Each JSON key and each operator of a format is a field,
// too.
var known = []Field{
	{Name: Time, operators: []string{"START_TIME"}, keys: []string{"start_time", "time", "timestamp", "@timestamp", "ts"}},
	{Name: Status, operators: []string{"RESPONSE_CODE"}, all: true,
		keys: []string{"response_code", "responseCode", "status_code", "status", "code"}},
	{Name: "method", operators: []string{"REQ(:METHOD)"}, keys: []string{"method", "request_method"}},
	{Name: Path, operators: []string{"REQ(X-ENVOY-ORIGINAL-PATH?:PATH)", "REQ(:PATH)", "REQ_WITHOUT_QUERY(:PATH)", "PATH"},
		keys: []string{"path", "request_path", "uri", "url"}},
	{Name: "protocol", operators: []string{"PROTOCOL"}, keys: []string{"protocol"}},
	{Name: "authority", operators: []string{"REQ(:AUTHORITY)"}, keys: []string{"authority", "host"}},
	{Name: "agent", operators: []string{"REQ(USER-AGENT)"}, keys: []string{"user_agent", "userAgent"}},
	{Name: "forwarded", operators: []string{"REQ(X-FORWARDED-FOR)"}, keys: []string{"x_forwarded_for"}},
	{Name: "request", operators: []string{"REQ(X-REQUEST-ID)"}, keys: []string{"request_id", "requestId"}},
	{Name: Duration, operators: []string{"DURATION"}, keys: []string{"duration", "duration_ms", "durationMs"}},
	{Name: "upstream-time", operators: []string{"RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)"},
		keys: []string{"upstream_service_time"}},
	{Name: Received, operators: []string{"BYTES_RECEIVED"}, keys: []string{"bytes_received", "bytesReceived"}},
	{Name: Sent, operators: []string{"BYTES_SENT"}, keys: []string{"bytes_sent", "bytesSent"}},
	{Name: "flags", operators: []string{"RESPONSE_FLAGS", "RESPONSE_FLAGS_LONG"},
		keys: []string{"response_flags", "responseFlags", "flags"}},
	{Name: "details", operators: []string{"RESPONSE_CODE_DETAILS"}, keys: []string{"response_code_details", "details"}},
	{Name: Service, operators: []string{"KUMA_DESTINATION_SERVICE"},
		keys: []string{"service", "destination", "destination_service"}},
	{Name: "source", operators: []string{"KUMA_SOURCE_SERVICE"}, keys: []string{"source", "source_service"}},
	{Name: "mesh", operators: []string{"KUMA_MESH"}, keys: []string{"mesh"}},
	{Name: Client, operators: []string{"KUMA_SOURCE_ADDRESS_WITHOUT_PORT", "DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT",
		"DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT", "KUMA_SOURCE_ADDRESS", "DOWNSTREAM_REMOTE_ADDRESS"},
		keys: []string{"client", "downstream_remote_address"}},
	{Name: "upstream", operators: []string{"UPSTREAM_HOST", "UPSTREAM_REMOTE_ADDRESS"},
		keys: []string{"upstream", "upstream_host"}},
	{Name: "cluster", operators: []string{"UPSTREAM_CLUSTER", "UPSTREAM_CLUSTER_RAW"},
		keys: []string{"cluster", "upstream_cluster"}},
	{Name: Route, operators: []string{"ROUTE_NAME"}, keys: []string{"route", "route_name"}},
	{Name: "sni", operators: []string{"REQUESTED_SERVER_NAME"}, keys: []string{"sni", "requested_server_name"}},
}

// Names returns the short names of fields.
func Names() []string {
	var out []string
	for i := range known {
		out = append(out, known[i].Name)
	}
	return out
}

// maxName limits the name of a field in bytes.
const maxName = 256

// Named returns the field with a name: a short name, an operator such as "REQ(X-TENANT)", or a key
// of JSON lines. A name that begins with a dot is always a key. keys replaces the keys of JSON
// lines in which the field is searched, unless it is empty.
func Named(name string, keys ...string) (Field, error) {
	name = strings.TrimSpace(name)
	if name == "" || len(name) > maxName {
		return Field{}, fmt.Errorf("the name of the field has %d bytes; 1 to %d are allowed", len(name), maxName)
	}
	if key, ok := strings.CutPrefix(name, "."); ok && key != "" {
		return Field{Name: name, keys: []string{key}}, nil
	}
	f := Field{Name: name, operators: []string{strings.ToUpper(strings.Trim(name, "%"))}, keys: []string{name}}
	for i := range known {
		if known[i].Name == name {
			f = known[i]
		}
	}
	if len(keys) > 0 {
		f.keys, f.all, f.own = slices.Clone(keys), true, true
	}
	return f, nil
}
