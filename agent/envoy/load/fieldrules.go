package load

import (
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/nearside-mesh/nearside/agent/envoy/finding"
)

// fieldRules applies the rules that Envoy's API carries as annotations, to a message and those in it that are not
// packed. Envoy applies the same ones when it decodes.
func (w *walker) fieldRules(m proto.Message) {
	v, ok := m.(interface{ ValidateAll() error })
	if !ok {
		return
	}
	if err := v.ValidateAll(); err != nil {
		w.annotated(err, "", m.ProtoReflect().Descriptor())
	}
}

// annotation is what generated validation returns for a field.
type annotation interface {
	Field() string
	Reason() string
	Cause() error
	ErrorName() string
}

// annotated reports the faults in a validation error of a message, each at its field. d is the message's type, nil where
// it is not known.
func (w *walker) annotated(err error, at string, d protoreflect.MessageDescriptor) {
	if all, ok := err.(interface{ AllErrors() []error }); ok {
		for _, e := range all.AllErrors() {
			w.annotated(e, at, d)
		}
		return
	}
	e, ok := err.(annotation)
	if !ok {
		w.report(0, finding.Reject, at, "%v", err)
		return
	}
	part, inner := fieldPointer(e.Field(), d)
	if at != "" {
		part = at + "/" + part
	}
	if e.Cause() != nil {
		w.annotated(e.Cause(), part, inner)
		return
	}
	message := strings.TrimSuffix(e.ErrorName(), "ValidationError")
	w.report(annotatedRule(message, e.Field()), finding.Reject, part, "%s", e.Reason())
}

// fieldPointer makes a part of a JSON pointer of a field as validation names it, "FilterChains[0]", and returns the type
// of the message in it. Validation names fields as Go does, and oneofs like fields.
func fieldPointer(field string, d protoreflect.MessageDescriptor) (string, protoreflect.MessageDescriptor) {
	name, key, indexed := strings.Cut(field, "[")
	name = strings.ReplaceAll(name, "_", "")
	var inner protoreflect.MessageDescriptor
	known := false
	for i := 0; d != nil && i < d.Fields().Len() && !known; i++ {
		if f := d.Fields().Get(i); strings.EqualFold(f.JSONName(), name) {
			name, known = f.JSONName(), true
			inner, _ = messageOf(f)
		}
	}
	if !known && name != "" {
		name = strings.ToLower(name[:1]) + name[1:]
	}
	if !indexed {
		return name, inner
	}
	return name + "/" + finding.PointerKey(strings.TrimSuffix(key, "]")), inner
}

// annotatedRule is the number of a field's rule where it has one of its own, else 0.
func annotatedRule(message, field string) int {
	name, _, _ := strings.Cut(field, "[")
	switch message + "." + name {
	case "Matcher.MatcherType", "Matcher_MatcherList.Matchers", "Matcher_MatcherTree.TreeType", "Matcher_MatcherTree_MatchMap.Map":
		return 35
	case "HttpConnectionManager.RouteSpecifier":
		return 43
	case "RouteMatch.PathSeparatedPrefix":
		return 59
	case "LocalityLbEndpoints.Priority":
		return 84
	case "OutlierDetection.MaxEjectionPercent", "OutlierDetection.EnforcingConsecutive_5Xx", "OutlierDetection.EnforcingSuccessRate":
		return 85
	case "HttpProtocolOptions.UpstreamProtocolOptions":
		return 87
	case "Cluster.ConnectTimeout":
		return 89
	case "Policy.Permissions", "Policy.Principals", "Permission_Set.Rules", "Principal_Set.Ids", "Permission.Rule", "Principal.Identifier":
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
