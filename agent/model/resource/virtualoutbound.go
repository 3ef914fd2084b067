package resource

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/strict"
)

// VirtualOutbound (legacy) gives workloads host names with ports, made by templates from the tags
// of inbounds and external services.
type VirtualOutbound struct {
	Selectors []LegacySelector    `json:"selectors"` // select the tags
	Conf      VirtualOutboundConf `json:"conf"`
}

// VirtualOutboundConf holds the templates for names and ports. In both, {{ .name }} is the value of
// a parameter's tag.
type VirtualOutboundConf struct {
	Host       string              `json:"host"`
	Port       string              `json:"port"`
	Parameters []TemplateParameter `json:"parameters"`
}

// TemplateParameter assigns a template name to a tag.
type TemplateParameter struct {
	Name   string `json:"name"`
	TagKey string `json:"tagKey,omitempty"` // "": Name
}

// Tag returns the tag key of the parameter.
func (p *TemplateParameter) Tag() string {
	if p.TagKey != "" {
		return p.TagKey
	}
	return p.Name
}

// Validate checks that the templates can yield a name and a port.
func (o *VirtualOutbound) Validate(v *Validator) {
	sel := v.Field("selectors")
	if len(o.Selectors) == 0 {
		sel.Faultf("the list is empty: give at least one match")
	}
	for i := range o.Selectors {
		at := sel.Index(i).Field("match")
		if len(o.Selectors[i].Match) == 0 {
			at.Faultf("no tag is given: give at least one, for example kuma.io/service: \"*\"")
		}
		at.Tags(o.Selectors[i].Match, true)
	}
	v = v.Field("conf")
	o.Conf.validateParameters(v.Field("parameters"))
	host, port := v.Field("host"), v.Field("port")
	if text, ok := o.Conf.check(host, o.Conf.Host, "x", "{{ .service }}.mesh"); ok {
		host.HostName(text, "a template of host names (with x for each value)")
	}
	if text, ok := o.Conf.check(port, o.Conf.Port, "1", "8080"); ok {
		if _, reason := portNumber(text); reason != "" {
			port.Faultf("%s (with 1 for each value)", reason)
		}
	}
}

func (c *VirtualOutboundConf) validateParameters(v *Validator) {
	service := false
	for i := range c.Parameters {
		p, at := &c.Parameters[i], v.Index(i)
		service = service || p.Tag() == TagService
		if p.Name == "" || strings.ContainsFunc(p.Name, func(r rune) bool { return r > 127 || !alnum(byte(r)) }) {
			at.Field("name").Faultf("%s is not the name of a parameter: only letters and digits are allowed",
				strict.Quote(p.Name))
		}
		if !tagChars(p.TagKey, true) {
			at.Field("tagKey").Faultf("the name of a tag may contain only letters, digits, '.', '-', '_', ':' and '/'")
		}
		if slices.ContainsFunc(c.Parameters[:i], func(o TemplateParameter) bool { return o.Name == p.Name }) {
			at.Field("name").Faultf("two parameters have the name %s: give each a different name", strict.Quote(p.Name))
		}
	}
	if !service {
		v.Faultf("no parameter uses the tag %s, which selects the destination: add {name: service, tagKey: %s}",
			TagService, TagService)
	}
}

// check fills a template with the same value for every parameter. It returns false if the template
// is invalid.
func (c *VirtualOutboundConf) check(v *Validator, template, with, example string) (string, bool) {
	if template == "" {
		v.Faultf("the template is missing, for example %s", example)
		return "", false
	}
	tags := make(map[string]string, len(c.Parameters))
	for i := range c.Parameters {
		tags[c.Parameters[i].Tag()] = with
	}
	text, _, reason := c.fill(template, tags)
	if reason != "" {
		v.Faultf("%s", reason)
	}
	return text, reason == ""
}

// Filled applies the templates to tags. It returns the name, the port, and the tags that the
// parameters use. If a required tag is missing, lacks is its key; if the result is invalid, reason
// says why.
func (o *VirtualOutbound) Filled(tags map[string]string) (host string, port uint32, chosen map[string]string,
	lacks, reason string) {
	host, lacks, reason = o.Conf.fill(o.Conf.Host, tags)
	var text string
	if lacks+reason == "" {
		text, lacks, reason = o.Conf.fill(o.Conf.Port, tags)
	}
	if lacks+reason != "" {
		return "", 0, nil, lacks, reason
	}
	var faults []Fault
	if NewValidator("", &faults).HostName(host, "a host name"); len(faults) > 0 {
		return "", 0, nil, "", faults[0].Reason
	}
	if port, reason = portNumber(text); reason != "" {
		return "", 0, nil, "", reason
	}
	chosen = make(map[string]string, len(o.Conf.Parameters))
	for i := range o.Conf.Parameters {
		key := o.Conf.Parameters[i].Tag()
		if value, ok := tags[key]; ok {
			chosen[key] = value
		}
	}
	return strings.ToLower(strings.TrimSuffix(host, ".")), port, chosen, "", ""
}

// Strength returns the number of exact tags in the most specific selector that matches; false if
// none matches.
func (o *VirtualOutbound) Strength(tags map[string]string) (exact int, matches bool) {
	for i := range o.Selectors {
		n, all := 0, true
		for k, want := range o.Selectors[i].Match {
			have, ok := tags[k]
			if all = ok && (want == "*" || want == have); !all {
				break
			}
			if want != "*" {
				n++
			}
		}
		if all {
			exact, matches = max(exact, n), true
		}
	}
	return exact, matches
}

// fill replaces the parameters of a template by tag values. It supports {{ .name }} and not the
// rest of Go's template language, which can loop or grow without limit.
func (c *VirtualOutboundConf) fill(template string, tags map[string]string) (text, lacks, reason string) {
	var b strings.Builder
	for rest := template; rest != ""; {
		literal, after, found := strings.Cut(rest, "{{")
		if strings.Contains(literal, "}}") {
			return "", "", strict.Quote(template) + " has a }} without {{"
		}
		b.WriteString(literal)
		if !found {
			break
		}
		action, next, closed := strings.Cut(after, "}}")
		if !closed {
			return "", "", strict.Quote(template) + " has a {{ without }}"
		}
		name, dotted := strings.CutPrefix(strings.TrimSpace(action), ".")
		i := slices.IndexFunc(c.Parameters, func(p TemplateParameter) bool { return p.Name == name })
		if !dotted || i < 0 {
			return "", "", fmt.Sprintf("{{ %s }} is not known: write {{ .name }} with the name of one of the parameters",
				strict.Short(strings.TrimSpace(action)))
		}
		value, ok := tags[c.Parameters[i].Tag()]
		if !ok {
			return "", c.Parameters[i].Tag(), ""
		}
		b.WriteString(value)
		if rest = next; b.Len() > 4*maxName { // already too long for a name; this much suffices for the message
			break
		}
	}
	return b.String(), "", ""
}

// portNumber parses a port, or returns the reason why it is invalid.
func portNumber(s string) (port uint32, reason string) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 {
		return 0, strict.Quote(s) + " is not a port: it is a number from 1 to 65535"
	}
	return uint32(n), ""
}
