package substitution

import (
	"slices"
	"strings"
)

// argRule specifies whether an operator takes an argument in parentheses.
type argRule uint8

const (
	argNone argRule = iota
	argOptional
	argRequired
)

// operator is one operator of Envoy's format strings.
type operator struct {
	name   string
	arg    argRule
	length bool // :LENGTH is allowed
	http   bool // has a value only for requests
	// since is the minor version of the first Envoy with the operator; 0: all supported ones. argSince
	// and lengthSince are those of the first Envoy that accepts an argument or a length.
	since, argSince, lengthSince uint32
	// check returns the fault in an argument, or "".
	check func(arg string) string
}

// form returns an example of the argument.
func (o *operator) form() string {
	switch {
	case strings.HasSuffix(o.name, "METADATA"):
		return "namespace:key"
	case strings.HasSuffix(o.name, "FILTER_STATE"):
		return "key"
	case o.name == "COMMON_DURATION":
		return "DS_RX_BEG:DS_TX_END:ms"
	case o.name == "METADATA":
		return "ROUTE:namespace:key"
	case o.name == "CEL":
		return "request.path"
	case o.name == "ENVIRONMENT", o.name == "QUERY_PARAM":
		return "NAME"
	}
	return "header-name"
}

func findOperator(name string) (*operator, bool) {
	i, ok := slices.BinarySearchFunc(operators, name, func(o operator, name string) int {
		return strings.Compare(o.name, name)
	})
	if !ok {
		return nil, false
	}
	return &operators[i], true
}

// operators lists the operators that Envoy knows without additional formatters, sorted by name: the
// command tables of http_specific_formatter.cc and stream_info_formatter.cc, and the built-in
// formatters. testdata/formats.txt has what Envoy 1.36 to 1.40 accept. It excludes names that need
// an entry in `formatters` (REQ_WITHOUT_QUERY), which the agent cannot add.
var operators = sorted(slices.Concat(
	list(operator{arg: argRequired, length: true, http: true, check: checkHeader},
		"REQ", "RESP", "TRAILER", "STREAM_INFO_REQ"),
	list(operator{http: true},
		"ACCESS_LOG_TYPE", "GRPC_STATUS_NUMBER", "LOCAL_REPLY_BODY", "PROTOCOL", "REQUEST_DURATION",
		"UPSTREAM_PROTOCOL", "REQUEST_HEADERS_BYTES", "REQUEST_TX_DURATION", "RESPONSE_CODE", "RESPONSE_DURATION",
		"RESPONSE_HEADERS_BYTES",
		"RESPONSE_TRAILERS_BYTES", "RESPONSE_TX_DURATION", "ROUTE_NAME", "STREAM_ID", "TRACE_ID",
		"UPSTREAM_REQUEST_ATTEMPT_COUNT", "VIRTUAL_CLUSTER_NAME"),
	list(operator{arg: argOptional, http: true}, "RESPONSE_CODE_DETAILS"),
	list(operator{arg: argOptional, length: true, http: true, check: checkPath}, "PATH"),
	list(operator{arg: argOptional, length: true, http: true, since: 38, check: checkQueryParams}, "QUERY_PARAMS"),
	list(operator{arg: argRequired, length: true, http: true, since: 37, check: checkHeader},
		"REQUEST_HEADER", "RESPONSE_HEADER", "RESPONSE_TRAILER"),
	list(operator{arg: argRequired, length: true, since: 37}, coalesce),
	list(operator{since: 37}, "UPSTREAM_REMOTE_ADDRESS_ENDPOINT_ID", "DOWNSTREAM_LOCAL_ADDRESS_ENDPOINT_ID",
		"DOWNSTREAM_DIRECT_LOCAL_ADDRESS_ENDPOINT_ID"),
	list(operator{since: 38},
		"SPAN_ID", "UPSTREAM_DETECTED_CLOSE_TYPE", "DOWNSTREAM_DETECTED_CLOSE_TYPE",
		"UPSTREAM_LOCAL_CLOSE_REASON", "DOWNSTREAM_LOCAL_CLOSE_REASON",
		"UPSTREAM_HOSTS_ATTEMPTED", "UPSTREAM_HOST_NAMES_ATTEMPTED", "UPSTREAM_HOSTS_ATTEMPTED_WITHOUT_PORT",
		"UPSTREAM_HOST_NAMES_ATTEMPTED_WITHOUT_PORT", "UPSTREAM_CONNECTION_IDS_ATTEMPTED",
		"DOWNSTREAM_PEER_ISSUER_FINGERPRINT_256", "DOWNSTREAM_PEER_ISSUER_SERIAL"),
	list(operator{since: 39}, "UPSTREAM_TLS_GROUP", "DOWNSTREAM_TLS_GROUP", "UPSTREAM_SERVER_NAME"),
	list(operator{since: 40}, "DOWNSTREAM_CX_RTT", "LISTENER_NAME"),
	list(operator{since: 40, http: true}, "ROUTE_RESOLUTION_COUNT", "ROUTE_RESOLUTION_TIME_US"),
	list(operator{arg: argRequired, length: true, check: checkAnyMetadata}, "METADATA"),
	list(operator{arg: argRequired, length: true}, "CEL"),
	list(operator{arg: argRequired, length: true, check: checkXFCC}, "XFCC_VALUE"),
	list(operator{arg: argOptional, http: true, check: checkGRPCStatus}, "GRPC_STATUS"),
	list(operator{arg: argRequired, length: true, http: true}, "QUERY_PARAM"),

	list(operator{arg: argOptional, check: checkTime},
		"START_TIME", "START_TIME_LOCAL", "EMIT_TIME", "EMIT_TIME_LOCAL",
		"DOWNSTREAM_PEER_CERT_V_START", "DOWNSTREAM_PEER_CERT_V_END", "UPSTREAM_PEER_CERT_V_START",
		"UPSTREAM_PEER_CERT_V_END"),
	list(operator{arg: argRequired, check: checkDuration}, "COMMON_DURATION"),
	list(operator{arg: argRequired, length: true, lengthSince: 37}, "DYNAMIC_METADATA"),
	list(operator{arg: argRequired}, "CLUSTER_METADATA", "UPSTREAM_METADATA"),
	// Envoy's parser accepts a filter state without an argument, but Envoy then rejects its empty key.
	list(operator{arg: argRequired, length: true, check: checkFilterState}, "FILTER_STATE", "UPSTREAM_FILTER_STATE"),
	list(operator{arg: argRequired, length: true}, "ENVIRONMENT"),
	list(operator{},
		"BYTES_RECEIVED", "BYTES_SENT", "BYTES_RETRANSMITTED", "PACKETS_RETRANSMITTED", "DOWNSTREAM_HANDSHAKE_DURATION",
		"CONNECTION_ID", "CONNECTION_TERMINATION_DETAILS", "CUSTOM_FLAGS", "DURATION",
		"FILTER_CHAIN_NAME", "HOSTNAME", "REQUESTED_SERVER_NAME", "RESPONSE_FLAGS", "RESPONSE_FLAGS_LONG",
		"ROUNDTRIP_DURATION", "TLS_JA3_FINGERPRINT", "TLS_JA4_FINGERPRINT", "UNIQUE_ID",
		"UPSTREAM_CLUSTER", "UPSTREAM_CLUSTER_RAW", "UPSTREAM_CONNECTION_ID", "UPSTREAM_CONNECTION_POOL_READY_DURATION",
		"UPSTREAM_HOST", "UPSTREAM_HOST_NAME", "UPSTREAM_HOST_NAME_WITHOUT_PORT",
		"DOWNSTREAM_TRANSPORT_FAILURE_REASON", "UPSTREAM_TRANSPORT_FAILURE_REASON",
		"DOWNSTREAM_PEER_CERT", "DOWNSTREAM_PEER_CHAIN_FINGERPRINTS_1", "DOWNSTREAM_PEER_CHAIN_FINGERPRINTS_256",
		"DOWNSTREAM_PEER_CHAIN_SERIALS", "DOWNSTREAM_PEER_FINGERPRINT_1", "DOWNSTREAM_PEER_FINGERPRINT_256",
		"DOWNSTREAM_PEER_ISSUER", "DOWNSTREAM_PEER_SERIAL", "DOWNSTREAM_PEER_SUBJECT", "DOWNSTREAM_LOCAL_SUBJECT",
		"UPSTREAM_PEER_CERT", "UPSTREAM_PEER_ISSUER", "UPSTREAM_PEER_SUBJECT"),
	list(operator{}, cross([]string{"UPSTREAM_", "DOWNSTREAM_"}, []string{"WIRE_", "HEADER_", "DECOMPRESSED_HEADER_"},
		[]string{"BYTES_SENT", "BYTES_RECEIVED"})...),
	list(operator{}, cross([]string{"UPSTREAM_LOCAL_", "UPSTREAM_REMOTE_", "DOWNSTREAM_LOCAL_", "DOWNSTREAM_REMOTE_",
		"DOWNSTREAM_DIRECT_LOCAL_", "DOWNSTREAM_DIRECT_REMOTE_"}, []string{"ADDRESS", "PORT"})...),
	list(operator{arg: argOptional, argSince: 38}, cross([]string{"UPSTREAM_LOCAL_", "UPSTREAM_REMOTE_",
		"DOWNSTREAM_LOCAL_", "DOWNSTREAM_REMOTE_", "DOWNSTREAM_DIRECT_LOCAL_", "DOWNSTREAM_DIRECT_REMOTE_"},
		[]string{"ADDRESS_WITHOUT_PORT"})...),
	list(operator{}, cross([]string{"DOWNSTREAM_PEER_", "DOWNSTREAM_LOCAL_"},
		[]string{"URI", "DNS", "IP", "EMAIL", "OTHERNAME"}, []string{"_SAN"})...),
	list(operator{},
		cross([]string{"UPSTREAM_PEER_", "UPSTREAM_LOCAL_"}, []string{"URI", "DNS", "IP"}, []string{"_SAN"})...),
	list(operator{}, cross([]string{"DOWNSTREAM_TLS_", "UPSTREAM_TLS_"}, []string{"VERSION", "CIPHER", "SESSION_ID"})...),
))

// list returns operators of one kind.
func list(kind operator, names ...string) []operator {
	out := make([]operator, len(names))
	for i, n := range names {
		out[i] = kind
		out[i].name = n
	}
	return out
}

// cross joins one word of each list, in every combination.
func cross(lists ...[]string) []string {
	out := []string{""}
	for _, words := range lists {
		var next []string
		for _, head := range out {
			for _, w := range words {
				next = append(next, head+w)
			}
		}
		out = next
	}
	return out
}

func sorted(ops []operator) []operator {
	slices.SortFunc(ops, func(a, b operator) int { return strings.Compare(a.name, b.name) })
	return ops
}
