package retry

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Conditions that are in force where a policy gives none.
const (
	defaultHTTP = "gateway-error,connect-failure,refused-stream"
	defaultGRPC = "cancelled,connect-failure,gateway-error,refused-stream,reset,resource-exhausted,unavailable"
)

// Words of Envoy that go with fields of their own.
const (
	statusCodes     = "retriable-status-codes"
	responseHeaders = "retriable-headers"
)

// methodPrefix begins the words for methods; the rest is the method.
const methodPrefix = "HttpMethod"

// httpWords are the words of Kuma for those of Envoy.
func httpWords() map[string]string {
	return map[string]string{
		"5xx":                     "5xx",
		"GatewayError":            "gateway-error",
		"Reset":                   "reset",
		"Retriable4xx":            "retriable-4xx",
		"ConnectFailure":          "connect-failure",
		"EnvoyRatelimited":        "envoy-ratelimited",
		"RefusedStream":           "refused-stream",
		"Http3PostConnectFailure": "http3-post-connect-failure",
	}
}

// grpcWords are the words of Kuma for those of Envoy.
func grpcWords() map[string]string {
	return map[string]string{
		"Canceled":          "cancelled",
		"DeadlineExceeded":  "deadline-exceeded",
		"Internal":          "internal",
		"ResourceExhausted": "resource-exhausted",
		"Unavailable":       "unavailable",
	}
}

func methods() []string {
	return []string{"Connect", "Delete", "Get", "Head", "Options", "Patch", "Post", "Put", "Trace"}
}

// conditions are those of a policy in the terms of Envoy.
type conditions struct {
	words    []string
	statuses []uint32
	methods  []string
}

// httpConditions reads conditions; bad is the first that is none, or -1.
func httpConditions(list []Condition) (out conditions, bad int) {
	bad = slices.IndexFunc(list, func(c Condition) bool {
		method, isMethod := strings.CutPrefix(c.text(), methodPrefix)
		status, isStatus := parseStatus(c.text())
		switch word := httpWords()[c.text()]; {
		case word != "":
			out.words = append(out.words, word)
		case isMethod && slices.Contains(methods(), method):
			out.methods = append(out.methods, strings.ToUpper(method))
		case isStatus:
			out.statuses = append(out.statuses, status)
		default:
			return true
		}
		return false
	})
	return out, bad
}

// grpcConditions is the same for calls.
func grpcConditions(list []Condition) (out conditions, bad int) {
	for _, c := range list {
		out.words = append(out.words, grpcWords()[c.text()])
	}
	return out, slices.Index(out.words, "")
}

// parseStatus reads an HTTP status of three digits.
func parseStatus(s string) (uint32, bool) {
	n, err := strconv.ParseUint(s, 10, 32)
	return uint32(n), err == nil && len(s) == 3 && n >= 100 && n <= 599
}

// httpChoices and grpcChoices list what may be given, for messages.
func httpChoices() string {
	return strings.Join(slices.Sorted(maps.Keys(httpWords())), ", ") + ", " + methodPrefix + " with " + strings.Join(methods(), ", ") + ", or an HTTP status of 100 to 599"
}

func grpcChoices() string { return strings.Join(slices.Sorted(maps.Keys(grpcWords())), ", ") }
