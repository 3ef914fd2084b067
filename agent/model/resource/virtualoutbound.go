package resource

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/strict"
)

// VirtualOutbound (legacy) gives workloads host names, and ports at addresses of these, that
// templates make of the tags of inbounds and of external services.
type VirtualOutbound struct {
	Selectors []LegacySelector    `json:"selectors"` // of these tags
	Conf      VirtualOutboundConf `json:"conf"`
}

// VirtualOutboundConf is how names and ports are made. In both templates {{ .name }} is the value
// of the tag of a parameter.
type VirtualOutboundConf struct {
	Host       string              `json:"host"`
	Port       string              `json:"port"`
	Parameters []TemplateParameter `json:"parameters"`
}

// TemplateParameter gives a tag a name in the templates.
type TemplateParameter struct {
	Name   string `json:"name"`
	TagKey string `json:"tagKey,omitempty"` // "": Name
}

// Tag is the key of the tag of the parameter.
func (p *TemplateParameter) Tag() string {
	if p.TagKey != "" {
		return p.TagKey
	}
	return p.Name
}

// Validate checks that the templates can make a name and a port.
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
		host.HostName(text, "a template of host names (x stands for what is filled in)")
	}
	if text, ok := o.Conf.check(port, o.Conf.Port, "1", "8080"); ok {
		if _, reason := portNumber(text); reason != "" {
			port.Faultf("%s (1 stands for what is filled in)", reason)
		}
	}
}

func (c *VirtualOutboundConf) validateParameters(v *Validator) {
	service := false
	for i := range c.Parameters {
		p, at := &c.Parameters[i], v.Index(i)
		service = service || p.Tag() == TagService
		if p.Name == "" || strings.ContainsFunc(p.Name, func(r rune) bool { return r > 127 || !alnum(byte(r)) }) {
			at.Field("name").Faultf("%s is not the name of a parameter: it has letters and digits alone", strict.Quote(p.Name))
		}
		if !tagChars(p.TagKey, true) {
			at.Field("tagKey").Faultf("the name of a tag has letters, digits, '.', '-', '_', ':' and '/' alone")
		}
		if slices.ContainsFunc(c.Parameters[:i], func(o TemplateParameter) bool { return o.Name == p.Name }) {
			at.Field("name").Faultf("the parameter %s is given twice: give each a name of its own", strict.Quote(p.Name))
		}
	}
	if !service {
		v.Faultf("no parameter is about the tag %s, which says where connections go: add {name: service, tagKey: %s}",
			TagService, TagService)
	}
}

// check fills a template in with the same text everywhere. False where it is none.
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

// Filled is what the templates make of the tags of something: the name, the port, and those of the
// tags that parameters are about. Where tags lack one that a template asks for, lacks is its key,
// and where else they make nothing reason says why.
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

// Strength is how many tags the strongest of the selectors names exactly that match tags; false
// when none matches.
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

// fill puts the values of tags into a template. It knows {{ .name }}, and nothing else of Go's
// template language, which could loop or grow without bound.
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
		if rest = next; b.Len() > 4*maxName { // no name is that long, and it is enough to say so
			break
		}
	}
	return b.String(), "", ""
}

// portNumber reads a port, or says why it is none.
func portNumber(s string) (port uint32, reason string) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 {
		return 0, strict.Quote(s) + " is not a port: it is a number from 1 to 65535"
	}
	return uint32(n), ""
}
