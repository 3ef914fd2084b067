package check

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/nearside-mesh/nearside/agent/compute/envoy"
	"github.com/nearside-mesh/nearside/agent/model/finding"
)

// maxFindings is the maximum number of findings about one resource.
const maxFindings = 100

// subject is the state of the check of one resource.
type subject struct {
	resource finding.Position // of the resource
	path     []pathElement
	stack    []protoreflect.FullName // types of the enclosing messages, including packed ones
	out      *checked
	anys     int // how deep the current message is packed
	// transport is the type of a cluster's transport socket. Findings that depend on it count as
	// contextual, so that they are not reused without it.
	transport  string
	contextual int
}

// pathElement is a field, with an index or a key if it is repeated.
type pathElement struct {
	field string // in lowerCamelCase
	index int    // or -1
	key   string // of a map
}

// checked holds the results for a single resource. They are the same for every proxy.
type checked struct {
	findings []finding.Finding
	newer    []finding.Finding // only for Envoy 1.37 and later, which know the field
	blocked  bool              // a finding blocks the resource
	refs     []ref
	uses     uses // extensions
	binds    []bind
	regexes  []sized // the larger ones
	files    []sink  // log files that Envoy opens
	socket   string  // of a listener: the settings that an update must not change
	secret   string  // of a secret: its kind
	resolves bool    // of a cluster: Envoy's default resolver resolves its host names
}

// ref is a reference to another resource.
type ref struct {
	kind     envoy.Kind
	name     string
	pointer  string
	rule     int
	severity finding.Severity // if the target is missing
	what     string           // the consequence of a missing target
	secret   string           // of a reference to a secret: the expected kind
}

// bind is an address of a listener.
type bind struct {
	address string // in Envoy's canonical form
	pointer string
	host    string
	port    uint32
	udp     bool
	binds   bool // to the port, too
	special bool // needs a capability
}

// sized is a regular expression with its program size.
type sized struct {
	pointer string
	size    int
}

// sink is a log file.
type sink struct {
	pointer string
	path    string
}

// pointer returns the JSON pointer of the current message, with more appended.
func (s *subject) pointer(more string) string {
	var b strings.Builder
	for _, e := range s.path {
		b.WriteByte('/')
		b.WriteString(e.field)
		switch {
		case e.key != "":
			b.WriteByte('/')
			b.WriteString(finding.PointerKey(e.key))
		case e.index >= 0:
			b.WriteByte('/')
			b.WriteString(strconv.Itoa(e.index))
		}
	}
	if more != "" {
		b.WriteByte('/')
		b.WriteString(more)
	}
	return b.String()
}

// report adds a finding about a field of the current message, or about the message if field is "".
func (s *subject) report(rule int, severity finding.Severity, field, format string, args ...any) {
	s.reportWith(nil, rule, severity, field, format, args...)
}

// reportWith is like report and adds other parts of the current message.
func (s *subject) reportWith(others []string, rule int, severity finding.Severity, field, format string, args ...any) {
	if severity.Blocks() {
		s.out.blocked = true
	}
	if len(s.out.findings) >= maxFindings {
		return
	}
	f := finding.Finding{Rule: rule, Severity: severity, Position: s.resource, Message: fmt.Sprintf(format, args...)}
	f.Pointer = s.pointer(field)
	for _, o := range others {
		p := s.resource
		p.Pointer = s.pointer(o)
		f.Others = append(f.Others, p)
	}
	s.out.findings = append(s.out.findings, f)
}

// reportNewer is like report for a field that Envoys before 1.37 ignore.
func (s *subject) reportNewer(rule int, severity finding.Severity, field, format string, args ...any) {
	if len(s.out.newer) < maxFindings {
		at := s.resource
		at.Pointer = s.pointer(field)
		s.out.newer = append(s.out.newer,
			finding.Finding{Rule: rule, Severity: severity, Position: at, Message: fmt.Sprintf(format, args...)})
	}
}

// refer records a reference from a field of the current message.
func (s *subject) refer(kind envoy.Kind, name, field string, rule int, severity finding.Severity, what string) {
	s.out.refs = append(s.out.refs,
		ref{kind: kind, name: name, pointer: s.pointer(field), rule: rule, severity: severity, what: what})
}

// inside reports whether a message of the given type encloses the current one.
func (s *subject) inside(name protoreflect.FullName) bool {
	return slices.Contains(s.stack, name)
}

// ruleFunc checks a single message.
type ruleFunc func(*subject, proto.Message)

// on adapts a check of one message type to a ruleFunc.
func on[T proto.Message](check func(*subject, T)) ruleFunc {
	return func(s *subject, m proto.Message) {
		if t, ok := m.(T); ok {
			check(s, t)
		}
	}
}
