package check

import (
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

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
	v, ok := m.(interface{ ValidateAll() error })
	if !ok {
		return
	}
	if err := v.ValidateAll(); err != nil {
		w.annotated(err, "", m.ProtoReflect(), w.scope == partOnly)
	}
}

// annotation is an error of generated validation about a field.
type annotation interface {
	Field() string
	Reason() string
	Cause() error
	ErrorName() string
}

// annotated reports the faults in a validation error of a message, each at its field. m may be nil
// if the message is unknown.
func (w *walker) annotated(err error, at string, m protoreflect.Message, partial bool) {
	if all, ok := err.(interface{ AllErrors() []error }); ok {
		for _, e := range all.AllErrors() {
			w.annotated(e, at, m, partial)
		}
		return
	}
	e, ok := err.(annotation)
	if !ok {
		w.report(0, finding.Reject, at, "%v", err)
		return
	}
	pointer, f, key := fieldOf(e.Field(), m)
	if partial && (f == nil || !m.Has(f)) {
		return
	}
	if at != "" {
		pointer = at + "/" + pointer
	}
	if e.Cause() != nil {
		w.annotated(e.Cause(), pointer, messageIn(m, f, key), partial && (f == nil || !f.IsList() || byPriority(f)))
		return
	}
	reason := e.Reason()
	if f == nil && m != nil {
		reason = choices(m.Descriptor(), e.Field()) + reason
	}
	message := strings.TrimSuffix(e.ErrorName(), "ValidationError")
	w.report(annotatedRule(message, e.Field()), finding.Reject, pointer, "%s", reason)
}

// byPriority reports whether a list is merged item by item, by priority.
func byPriority(f protoreflect.FieldDescriptor) bool {
	return f.Parent().FullName() == "envoy.config.cluster.v3.CircuitBreakers"
}

// fieldOf finds a field by its name in a validation error, such as "FilterChains[0]": the name in
// Go, also for a oneof. It returns the field's part of a JSON pointer, the field, or nil if the
// message has no such field, and the key or index.
func fieldOf(field string, m protoreflect.Message) (string, protoreflect.FieldDescriptor, string) {
	name, key, indexed := strings.Cut(field, "[")
	var found protoreflect.FieldDescriptor
	if m != nil {
		found = named(m.Descriptor().Fields(), name)
	}
	pointer := strings.ReplaceAll(name, "_", "")
	if found != nil {
		pointer = found.JSONName()
	} else if pointer != "" {
		pointer = strings.ToLower(pointer[:1]) + pointer[1:]
	}
	if !indexed {
		return pointer, found, ""
	}
	key = strings.TrimSuffix(key, "]")
	return pointer + "/" + finding.PointerKey(key), found, key
}

// named finds a descriptor by its Go name.
func named[D protoreflect.Descriptor](list interface {
	Len() int
	Get(int) D
}, name string) (found D) {
	name = strings.ReplaceAll(name, "_", "")
	for i := range list.Len() {
		if d := list.Get(i); strings.EqualFold(strings.ReplaceAll(string(d.Name()), "_", ""), name) {
			return d
		}
	}
	return found
}

// choices lists the fields of a oneof, or returns "" for another name.
func choices(d protoreflect.MessageDescriptor, name string) string {
	o := named(d.Oneofs(), name)
	if o == nil {
		return ""
	}
	fields := make([]string, o.Fields().Len())
	for i := range fields {
		fields[i] = o.Fields().Get(i).JSONName()
	}
	return "one of " + strings.Join(fields, ", ") + ": "
}

// messageIn returns the message in a field, or nil.
func messageIn(m protoreflect.Message, f protoreflect.FieldDescriptor, key string) protoreflect.Message {
	switch {
	case f == nil:
		return nil
	case f.IsList():
		if i, err := strconv.Atoi(key); err == nil && i >= 0 && i < m.Get(f).List().Len() {
			return m.Get(f).List().Get(i).Message()
		}
	case f.IsMap():
		if f.MapKey().Kind() == protoreflect.StringKind {
			if v := m.Get(f).Map().Get(protoreflect.ValueOfString(key).MapKey()); v.IsValid() && f.MapValue().Message() != nil {
				return v.Message()
			}
		}
	case f.Message() != nil:
		return m.Get(f).Message()
	}
	return nil
}

// annotatedRule returns the rule number of a field, or 0 if the field has no rule.
func annotatedRule(message, field string) int {
	name, _, _ := strings.Cut(field, "[")
	switch message + "." + name {
	case "Listener_ConnectionBalanceConfig.BalanceType":
		return 19
	case "Matcher.MatcherType", "Matcher_MatcherList.Matchers", "Matcher_MatcherTree.TreeType",
		"Matcher_MatcherTree_MatchMap.Map":
		return 35
	case "HttpConnectionManager.RouteSpecifier":
		return 43
	case "RouteMatch.PathSeparatedPrefix":
		return 59
	case "LocalityLbEndpoints.Priority":
		return 84
	case "OutlierDetection.MaxEjectionPercent", "OutlierDetection.EnforcingConsecutive_5Xx",
		"OutlierDetection.EnforcingSuccessRate":
		return 85
	case "HttpProtocolOptions.UpstreamProtocolOptions":
		return 87
	case "Cluster.ConnectTimeout":
		return 89
	case "Policy.Permissions", "Policy.Principals", "Permission_Set.Rules", "Principal_Set.Ids", "Permission.Rule",
		"Principal.Identifier":
		return 99
	case "RBAC.StatPrefix":
		return 100
	case "FaultAbort.HttpStatus", "FaultAbort.ErrorType", "FaultDelay.FixedDelay", "FaultDelay.FaultDelaySecifier":
		return 103
	case "FileAccessLog.Path":
		return 106
	case "AccessLogFilter.FilterSpecifier", "AndFilter.Filters", "OrFilter.Filters", "ResponseFlagFilter.Flags":
		return 107
	}
	return 0
}
