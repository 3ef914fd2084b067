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

// maxFindings bounds the findings about one resource.
const maxFindings = 100

// subject is a resource while it is checked by itself.
type subject struct {
	place finding.Place // of the resource
	path  []pathElement
	stack []protoreflect.FullName // of the messages around the present one, those in Any too
	out   *checked
	anys  int // how deep the present message is packed
	// transport is the type of a cluster's transport socket. What depends on it counts as contextual:
	// it cannot be remembered without it.
	transport  string
	contextual int
}

// pathElement is a field, with an index or a key where it is repeated.
type pathElement struct {
	field string // in lowerCamelCase
	index int    // -1 for none
	key   string // of a map
}

// checked is what is known of a resource by itself. It holds for every proxy.
type checked struct {
	findings []finding.Finding
	newer    []finding.Finding // of Envoys from 1.37 on, which alone know the field
	blocked  bool              // a finding blocks
	refs     []ref
	uses     uses // extensions
	binds    []bind
	regexes  []sized // the larger ones
	files    []sink  // that Envoy opens for its logs
	socket   string  // of a listener: what must stay as it is while it is updated
	secret   string  // of a secret: its kind
	resolves bool    // of a cluster: its host names are resolved by Envoy's usual resolver
}

// ref is a reference to another resource.
type ref struct {
	kind     envoy.Kind
	name     string
	pointer  string
	rule     int
	severity finding.Severity // of a reference that leads nowhere
	what     string           // what happens then
	secret   string           // of a reference to a secret: the kind that is expected
}

// bind is an address that a listener owns.
type bind struct {
	address string // as Envoy compares it
	pointer string
	host    string
	port    uint32
	udp     bool
	binds   bool // to the port, too
	special bool // needs a capability
}

// sized is a regular expression with the size of its program.
type sized struct {
	pointer string
	size    int
}

// sink is a file for a log.
type sink struct {
	pointer string
	path    string
}

// pointer is the JSON pointer of the present message, with more keys behind it.
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

// report adds a finding about a part of the present message, "" for the whole.
func (s *subject) report(rule int, severity finding.Severity, part, format string, args ...any) {
	s.reportWith(nil, rule, severity, part, format, args...)
}

// reportWith is report with further places, which are parts of the present message as well.
func (s *subject) reportWith(others []string, rule int, severity finding.Severity, part, format string, args ...any) {
	if severity.Blocks() {
		s.out.blocked = true
	}
	if len(s.out.findings) >= maxFindings {
		return
	}
	f := finding.Finding{Rule: rule, Severity: severity, Place: s.place, Message: fmt.Sprintf(format, args...)}
	f.Pointer = s.pointer(part)
	for _, o := range others {
		p := s.place
		p.Pointer = s.pointer(o)
		f.Others = append(f.Others, p)
	}
	s.out.findings = append(s.out.findings, f)
}

// reportNewer is report for a fault in a field that older Envoys than 1.37 pass over.
func (s *subject) reportNewer(rule int, severity finding.Severity, part, format string, args ...any) {
	if len(s.out.newer) < maxFindings {
		at := s.place
		at.Pointer = s.pointer(part)
		s.out.newer = append(s.out.newer,
			finding.Finding{Rule: rule, Severity: severity, Place: at, Message: fmt.Sprintf(format, args...)})
	}
}

// refer notes a reference from a part of the present message.
func (s *subject) refer(kind envoy.Kind, name, part string, rule int, severity finding.Severity, what string) {
	s.out.refs = append(s.out.refs,
		ref{kind: kind, name: name, pointer: s.pointer(part), rule: rule, severity: severity, what: what})
}

// inside reports whether the present message is inside one of a type.
func (s *subject) inside(name protoreflect.FullName) bool {
	return slices.Contains(s.stack, name)
}

// ruleFunc checks a message by itself.
type ruleFunc func(*subject, proto.Message)

// on makes a ruleFunc of one for a type.
func on[T proto.Message](check func(*subject, T)) ruleFunc {
	return func(s *subject, m proto.Message) {
		if t, ok := m.(T); ok {
			check(s, t)
		}
	}
}
