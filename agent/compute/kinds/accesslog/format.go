package accesslog

import (
	"encoding/json"
	"maps"
	"net"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/compute/logline"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/compute/substitution"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Format is the format of entries: {type: Plain, plain: TEXT} or {type: Json, json: FIELDS}, or in
// the form of the design document {type: string, value: TEXT} or {type: json, value: FIELDS}. It
// preserves the original JSON.
type Format struct{ resource.Raw }

// formatForm describes the fields of a Format to the schema.
type formatForm struct {
	Type  string        `json:"type" check:"Plain|Json|string|json"`
	Plain string        `json:"plain"` // text of type Plain
	JSON  []Attribute   `json:"json"`  // fields of type Json; values are format strings
	Value *resource.Raw `json:"value"` // text of type string, or fields of type json
	// leaves out fields without a value, instead of printing "-"
	OmitEmptyValues bool `json:"omitEmptyValues"`
}

// Form returns a value with the fields of a Format.
func (Format) Form() any { return formatForm{} }

// template is a parsed format.
type template struct {
	text      []substitution.Segment // for a text format
	json      bool
	keys      []string // for a JSON format, with a value each
	values    [][]substitution.Segment
	omitEmpty bool // omit empty values instead of printing "-"
}

// maxFields limits the fields of a JSON format.
const maxFields = 256

// template returns the parsed format of a valid document.
func (f *Format) template() template {
	var none []resource.Fault
	return f.read(resource.NewValidator("", &none))
}

// read parses a format and reports faults. The template contains the valid parts.
func (f *Format) read(v *resource.Validator) template {
	var t template
	fields, ok := object(f.JSON)
	if !ok {
		if _, text := str(f.JSON); text {
			v.Faultf("a plain string is not supported: use {type: Plain, plain: …} or {type: string, value: …}")
		} else {
			v.Faultf("a mapping is required: use {type: Plain, plain: …} or {type: Json, json: [{key: …, value: …}]}")
		}
		return t
	}
	if raw, ok := fields["omitEmptyValues"]; ok {
		switch string(raw) {
		case "true":
			t.omitEmpty = true
		case "false":
		default:
			v.Field("omitEmptyValues").Faultf("a boolean is required: use true or false without quotes")
		}
	}
	typ, _ := str(fields["type"])
	if !v.Field("type").OneOf(typ, "Plain", "Json", "string", "json") {
		return t
	}
	t.json = strings.EqualFold(typ, "json")
	body := map[string]string{"Plain": "plain", "Json": "json"}[typ]
	if body == "" {
		body = "value"
	}
	for _, k := range slices.Sorted(maps.Keys(fields)) {
		switch k {
		case "type", "omitEmptyValues", body:
		case "plain", "json", "value":
			v.Field(k).Faultf("%s is not allowed with type %s: remove it", k, typ)
		default:
			v.Field(toolkit.Clip(k)).Faultf("unknown field; known fields: type, plain, json, value, omitEmptyValues")
		}
	}
	if at := v.Field(body); t.json {
		t.readJSON(at, fields[body])
	} else {
		t.readText(at, fields[body])
	}
	return t
}

func (t *template) readText(v *resource.Validator, raw json.RawMessage) {
	text, ok := str(raw)
	switch {
	case raw != nil && !ok:
		v.Faultf("a string is required, with operators such as %%START_TIME%%")
	case text == "":
		v.Faultf("the format is missing: give a text with operators, such as %%START_TIME%%")
	default:
		t.text = parse(v, text)
	}
}

// CheckText validates a text format.
func CheckText(text string) error {
	_, err := substitution.ParseFormat(text, placeholders[:]...)
	return err
}

// parse parses a format string and reports faults.
func parse(v *resource.Validator, text string) []substitution.Segment {
	segs, err := substitution.ParseFormat(text, placeholders[:]...)
	if err != nil {
		v.Faultf("%v", err)
	}
	return segs
}

func (t *template) readJSON(v *resource.Validator, raw json.RawMessage) {
	items, ok := list(raw)
	switch {
	case raw != nil && !ok:
		v.Faultf("a list of {key: …, value: …} is required")
		return
	case len(items) == 0:
		v.Faultf("the fields are missing: give at least one {key: …, value: …}")
		return
	case !toolkit.AtMost(v, len(items), maxFields, "fields"):
		return
	}
	var entries []substitution.Field
	var validators []*resource.Validator
	for i, item := range items {
		at := v.Index(i)
		if e, ok := readField(at, item); ok {
			entries, validators = append(entries, e), append(validators, at)
		}
	}
	values, faults := substitution.ParseJSONFormat(entries, placeholders[:]...)
	for _, f := range faults {
		field := "value"
		if f.Key {
			field = "key"
		}
		validators[f.Index].Field(field).Faultf("%v", f.Err)
	}
	for i, e := range entries {
		t.keys, t.values = append(t.keys, e.Key), append(t.values, values[i])
	}
}

// readField parses one entry of a JSON format.
func readField(v *resource.Validator, raw json.RawMessage) (substitution.Field, bool) {
	var e substitution.Field
	fields, ok, good := members(v, raw, "{key: …, value: …}", "key", "value")
	if !ok {
		return e, false
	}
	for _, f := range []struct {
		name string
		to   *string
	}{{"key", &e.Key}, {"value", &e.Value}} {
		s, ok := str(fields[f.name])
		switch {
		case fields[f.name] != nil && !ok:
			v.Field(f.name).Faultf("a string is required: use quotes")
		case s == "":
			v.Field(f.name).Faultf("the %s is missing", f.name)
		}
		*f.to = s
		good = good && s != ""
	}
	// Kuma inserts both between quotes without escaping, and rejects the result if it is not valid
	// JSON.
	if s := e.Key + e.Value; good &&
		(strings.Contains(s, `"`) || !json.Valid([]byte(`"`+e.Key+`"`)) || !json.Valid([]byte(`"`+e.Value+`"`))) {
		v.Faultf("%q contains a quotation mark, backslash, or line break, which is not allowed in a JSON field",
			toolkit.Clip(e.Key+": "+e.Value))
		good = false
	}
	return e, good
}

// members parses an object with some known fields. ok reports whether it is an object, and good
// whether it has no other fields.
func members(v *resource.Validator, raw json.RawMessage, form string,
	known ...string) (fields map[string]json.RawMessage, ok, good bool) {
	if fields, ok = object(raw); !ok {
		v.Faultf("%s is required", form)
	}
	good = ok
	for _, k := range slices.Sorted(maps.Keys(fields)) {
		if !slices.Contains(known, k) {
			v.Field(toolkit.Clip(k)).Faultf("unknown field; known fields: %s", strings.Join(known, ", "))
			good = false
		}
	}
	return fields, ok, good
}

// object, list, and str parse JSON of one type. They return false if the JSON has another type.
func object(raw json.RawMessage) (map[string]json.RawMessage, bool) {
	var m map[string]json.RawMessage
	err := json.Unmarshal(raw, &m)
	return m, err == nil && m != nil
}

func list(raw json.RawMessage) ([]json.RawMessage, bool) {
	var l []json.RawMessage
	err := json.Unmarshal(raw, &l)
	return l, err == nil && l != nil
}

func str(raw json.RawMessage) (string, bool) {
	var s *string
	if err := json.Unmarshal(raw, &s); err != nil || s == nil {
		return "", false
	}
	return *s, true
}

// Kuma's placeholders, which are replaced before Envoy receives a format.
const (
	sourceAddress     = "KUMA_SOURCE_ADDRESS" // with port 0
	sourceIP          = "KUMA_SOURCE_ADDRESS_WITHOUT_PORT"
	sourceService     = "KUMA_SOURCE_SERVICE"
	destination       = "KUMA_DESTINATION_SERVICE"
	meshName          = "KUMA_MESH"
	trafficDirection  = "KUMA_TRAFFIC_DIRECTION"
	zoneName          = "KUMA_ZONE"
	workloadID        = "KUMA_WORKLOAD"
	unknownService    = "unknown"
	DirectionInbound  = "INBOUND"
	DirectionOutbound = "OUTBOUND"
	DirectionNone     = "UNSPECIFIED"
)

var placeholders = [...]string{sourceAddress, sourceIP, sourceService, destination, meshName, trafficDirection,
	zoneName, workloadID}

// Kuma's default formats.
const (
	defaultHTTP = logline.DefaultHTTP
	defaultTCP  = logline.DefaultTCP
)

// values are the values of the placeholders.
type values struct {
	source, destination, direction string
	// peer is true if every client presents a certificate of the mesh; Envoy then provides the
	// source.
	peer bool

	address, mesh, zone, workload string // of the proxy, equal for all its traffic
}

// valuesOf returns the values of a proxy. Its address is the one at which others reach it, in both
// directions, as in Kuma.
func valuesOf(c *policy.Context) values {
	n := &c.Dataplane().Networking
	w := toolkit.WorkloadOf(c)
	v := values{address: n.Address, mesh: w.Mesh, zone: w.Zone, workload: w.Name}
	if n.AdvertisedAddress != "" {
		v.address = n.AdvertisedAddress
	}
	return v
}

// serviceOf returns the service name of a proxy: that of its gateway, or the alphabetically first
// of its inbounds.
func serviceOf(d *resource.Dataplane) string {
	if g := d.Networking.Gateway; g != nil && g.Tags[resource.TagService] != "" {
		return g.Tags[resource.TagService]
	}
	first := ""
	for i := range d.Networking.Inbound {
		if s := d.Networking.Inbound[i].Tags[resource.TagService]; s != "" && (first == "" || s < first) {
			first = s
		}
	}
	if first == "" {
		return unknownService
	}
	return first
}

// Formats for a peer. The address is the source of the connection, regardless of X-Forwarded-For.
// The service is in the first URI of the certificate, spiffe://MESH/SERVICE; another URI is printed
// completely.
const (
	peerAddress = "%DOWNSTREAM_DIRECT_REMOTE_ADDRESS%"
	peerIP      = "%DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT%"
	peerService = `%CEL(re.extract(connection.uri_san_peer_certificate, "^(?:spiffe://[^/]+/)?(.*)$", "\\1"))%`
)

// of returns the value of a placeholder, and whether it is an Envoy format.
func (v *values) of(placeholder string) (value string, format bool) {
	if v.peer {
		switch placeholder {
		case sourceAddress:
			return peerAddress, true
		case sourceIP:
			return peerIP, true
		case sourceService:
			return peerService, true
		}
	}
	return v.text(placeholder), false
}

// text returns the value of a placeholder that the agent knows.
func (v *values) text(placeholder string) string {
	switch placeholder {
	case sourceAddress:
		return net.JoinHostPort(v.address, "0")
	case sourceIP:
		return v.address
	case sourceService:
		return v.source
	case destination:
		return v.destination
	case meshName:
		return v.mesh
	case trafficDirection:
		return v.direction
	case zoneName:
		return v.zone
	case workloadID:
		return v.workload
	}
	return ""
}

// uses reports whether a segment of the template satisfies a predicate.
func (t *template) uses(matches func(*substitution.Segment) bool) bool {
	has := func(segs []substitution.Segment) bool {
		return slices.ContainsFunc(segs, func(s substitution.Segment) bool { return matches(&s) })
	}
	return has(t.text) || slices.ContainsFunc(t.values, has)
}

func ofDestination(s *substitution.Segment) bool { return s.Placeholder && s.Operator == destination }

// aboutRequests returns an operator that has no value for connections, or "".
func (t *template) aboutRequests() string {
	found := ""
	t.uses(func(s *substitution.Segment) bool {
		if s.HTTP() {
			found = s.Raw
		}
		return found != ""
	})
	return found
}

// forgeable returns an operator of a text format whose value may contain line breaks from a client,
// or "". Envoy decodes query parameters.
func (t *template) forgeable() string {
	found := ""
	if !t.json {
		t.uses(func(s *substitution.Segment) bool {
			if s.Operator == "QUERY_PARAM" || s.Operator == "QUERY_PARAMS" && !strings.EqualFold(s.Arg, "ORIG") {
				found = s.Raw
			}
			return found != ""
		})
	}
	return found
}
