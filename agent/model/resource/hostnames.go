package resource

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/strict"
)

const kindHostnameGenerator = "HostnameGenerator"

// HostnamePart is a piece of a hostname template: literal text, a field of the service, or the
// value of a label. Exactly one is set.
type HostnamePart struct {
	Literal string
	Field   string // DisplayName, Name, Namespace, Mesh, or Zone
	Label   string
}

// Fields that a hostname template may use.
var hostnameFields = [...]string{"DisplayName", "Name", "Namespace", "Mesh", "Zone"}

// ParseHostnameTemplate parses a HostnameGenerator's template. It supports {{ .DisplayName }} and
// the other fields, and {{ label "key" }}. It does not support the rest of Go's template language,
// which can loop or grow without limit.
func ParseHostnameTemplate(s string) ([]HostnamePart, error) {
	var parts []HostnamePart
	for s != "" {
		literal, rest, found := strings.Cut(s, "{{")
		if strings.Contains(literal, "}}") {
			return nil, fmt.Errorf("%s has a }} without {{", strict.Quote(s))
		}
		if literal != "" {
			parts = append(parts, HostnamePart{Literal: literal})
		}
		if !found {
			break
		}
		action, after, closed := strings.Cut(rest, "}}")
		if !closed {
			return nil, fmt.Errorf("%s has a {{ without }}", strict.Quote(s))
		}
		p, err := hostnameAction(strings.TrimSpace(action))
		if err != nil {
			return nil, err
		}
		parts = append(parts, p)
		s = after
	}
	return parts, nil
}

func hostnameAction(action string) (HostnamePart, error) {
	if name, ok := strings.CutPrefix(action, "."); ok && slices.Contains(hostnameFields[:], name) {
		return HostnamePart{Field: name}, nil
	}
	if arg, ok := strings.CutPrefix(action, "label "); ok {
		if key, err := strconv.Unquote(strings.TrimSpace(arg)); err == nil && labelKeyFault(key) == "" {
			return HostnamePart{Label: key}, nil
		}
	}
	return HostnamePart{}, fmt.Errorf(`{{ %s }} is not known: write {{ .%s }} or {{ label "key" }}`,
		strict.Short(action), strings.Join(hostnameFields[:], " }}, {{ ."))
}

// Validate checks the generator.
func (g *HostnameGenerator) Validate(v *Validator) {
	n := 0
	for _, s := range []struct {
		field string
		sel   *LabelSelector
	}{
		{"meshService", g.Selector.MeshService},
		{"meshExternalService", g.Selector.MeshExternalService},
		{"meshMultiZoneService", g.Selector.MeshMultiZoneService},
	} {
		if s.sel != nil {
			n++
			v.Field("selector").Field(s.field).Field("matchLabels").matchLabels(s.sel.MatchLabels)
		}
	}
	if n != 1 {
		v.Field("selector").
			Faultf("%d selectors are given: give exactly one of meshService, meshExternalService, meshMultiZoneService", n)
	}
	at := v.Field("template")
	if g.Template == "" {
		if g.Extension == nil {
			at.Faultf("the template is missing, for example {{ .DisplayName }}.svc.mesh.local")
		}
		return
	}
	parts, err := ParseHostnameTemplate(g.Template)
	if err != nil {
		at.Faultf("%v", err)
		return
	}
	var b strings.Builder
	for _, p := range parts {
		if p.Literal == "" {
			b.WriteByte('x') // placeholder for a value
		}
		b.WriteString(p.Literal)
	}
	at.HostName(b.String(), "a template of host names (with x for each value)")
}
