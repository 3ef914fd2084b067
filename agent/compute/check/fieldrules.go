package check

import (
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/nearside-mesh/nearside/agent/base/fieldrule"
	"github.com/nearside-mesh/nearside/agent/model/finding"
)

// scope selects the rules that a walk applies.
type scope uint8

const (
	allRules   scope = iota
	fieldsOnly       // the API's annotations
	partOnly         // the API's annotations for a partial message, whose unset fields come from another one
)

// CheckFields checks a message, and everything that it packs, against the annotations of Envoy's
// API. A partial message is merged into another one later: its unset fields are not missing, but
// the items of its lists are complete. The findings name no resource, and their pointers start at
// the message.
func CheckFields(m proto.Message, partial bool) []finding.Finding {
	w := &walker{subject: &subject{out: &checked{}}, cache: &cache{plans: newPlans()}, scope: fieldsOnly}
	if partial {
		w.scope = partOnly
	}
	w.root(m)
	return w.out.findings
}

// fieldRules applies the annotations of Envoy's API to a message and its unpacked submessages, as
// Envoy does when it decodes.
func (w *walker) fieldRules(m proto.Message) {
	partial := w.scope == partOnly
	fieldrule.Each(m, func(v fieldrule.Violation) {
		if partial && mergedLater(v) {
			return
		}
		reason := v.Reason
		if v.Oneof != nil {
			reason = choices(v.Oneof) + reason
		}
		w.report(annotatedRule(v), finding.Reject, pointer(v), "%s", reason)
	})
}

// mergedLater reports whether a violation in a partial message may be corrected by the message that
// it is merged into: a missing field, outside of items of lists.
func mergedLater(v fieldrule.Violation) bool {
	last := len(v.Path) - 1
	for _, s := range v.Path[:last] {
		if s.Field.IsList() && !byPriority(s.Field) {
			return false
		}
	}
	return v.Field == nil || !v.In.Has(v.Field)
}

// byPriority reports whether a list is merged item by item, by priority.
func byPriority(f protoreflect.FieldDescriptor) bool {
	return f.Parent().FullName() == "envoy.config.cluster.v3.CircuitBreakers"
}

// pointer returns a JSON pointer to the field or oneof of a violation.
func pointer(v fieldrule.Violation) string {
	var b strings.Builder
	for i, s := range v.Path {
		if i > 0 {
			b.WriteByte('/')
		}
		if s.Field == nil {
			b.WriteString(jsonName(v.Oneof))
			break
		}
		b.WriteString(s.Field.JSONName())
		switch {
		case s.Index >= 0:
			b.WriteString("/" + strconv.Itoa(s.Index))
		case s.Key.IsValid():
			b.WriteString("/" + finding.PointerKey(s.Key.String()))
		}
	}
	return b.String()
}

// jsonName returns the name of a oneof in the form of field names in JSON.
func jsonName(o protoreflect.OneofDescriptor) string {
	words := strings.Split(string(o.Name()), "_")
	for i, w := range words[1:] {
		words[i+1] = strings.ToUpper(w[:1]) + w[1:]
	}
	return strings.Join(words, "")
}

// choices lists the fields of a oneof.
func choices(o protoreflect.OneofDescriptor) string {
	fields := make([]string, o.Fields().Len())
	for i := range fields {
		fields[i] = o.Fields().Get(i).JSONName()
	}
	return "one of " + strings.Join(fields, ", ") + ": "
}

// annotatedRule returns the rule number of a violation, or 0 if its field has no rule. Fields of
// equal messages in several packages of Envoy's API have the same rule.
func annotatedRule(v fieldrule.Violation) int {
	d := protoreflect.Descriptor(v.Field)
	if v.Field == nil {
		d = v.Oneof
	}
	switch strings.TrimPrefix(string(d.FullName()), string(d.ParentFile().Package())+".") {
	case "Listener.ConnectionBalanceConfig.balance_type":
		return 19
	case "Matcher.matcher_type", "Matcher.MatcherList.matchers", "Matcher.MatcherTree.tree_type",
		"Matcher.MatcherTree.MatchMap.map":
		return 35
	case "HttpConnectionManager.route_specifier":
		return 43
	case "RouteMatch.path_separated_prefix":
		return 59
	case "LocalityLbEndpoints.priority":
		return 84
	case "OutlierDetection.max_ejection_percent", "OutlierDetection.enforcing_consecutive_5xx",
		"OutlierDetection.enforcing_success_rate":
		return 85
	case "HttpProtocolOptions.upstream_protocol_options":
		return 87
	case "Cluster.connect_timeout":
		return 89
	case "Policy.permissions", "Policy.principals", "Permission.Set.rules", "Principal.Set.ids", "Permission.rule",
		"Principal.identifier":
		return 99
	case "RBAC.stat_prefix":
		return 100
	case "FaultAbort.http_status", "FaultAbort.error_type", "FaultDelay.fixed_delay", "FaultDelay.fault_delay_secifier":
		return 103
	case "FileAccessLog.path":
		return 106
	case "AccessLogFilter.filter_specifier", "AndFilter.filters", "OrFilter.filters", "ResponseFlagFilter.flags":
		return 107
	}
	return 0
}
