package resource

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/strict"
)

// Conf is the part of a policy that its kind defines.
type Conf interface {
	Validate(v *Validator)
}

// TargetRef selects the target of a policy or of one of its items.
type TargetRef struct {
	Kind string `json:"kind"` // what is selected
	// the name of one resource, or a value of the tag kuma.io/service
	Name string `json:"name,omitempty"`
	// namespace of that resource, on Kubernetes
	Namespace string `json:"namespace,omitempty"`
	// required tags, for MeshSubset and MeshServiceSubset
	Tags map[string]string `json:"tags,omitempty"`
	// selects all resources with these labels, instead of one name
	Labels map[string]string `json:"labels,omitempty"`
	// one port or inbound of the target, by name or number
	SectionName string `json:"sectionName,omitempty"`
	// not allowed: a policy applies only to its mesh
	Mesh string `json:"mesh,omitempty"`
	// Sidecar, Gateway, or both; both if unset
	ProxyTypes []string `json:"proxyTypes,omitempty" check:"someItems"`
}

// Policy holds the structure of all targetRef policies. The plugin of a kind supplies the Conf
// types through the PolicyShape of its descriptor.
type Policy struct {
	Shape     *PolicyShape
	TargetRef *TargetRef   // nil: the whole mesh
	From      []PolicyItem // inbound traffic
	Rules     []PolicyItem // newer form of From, which excludes it; their targetRefs are the Mesh
	To        []PolicyItem // outbound traffic
	Default   Conf         // for kinds that apply to the whole proxy
}

// PolicyItem is one entry of from, rules, or to.
type PolicyItem struct {
	TargetRef TargetRef
	Matches   []ClientMatch // only in rules: the clients; empty for all
	Conf      Conf
}

// PolicyShape defines the fields that a policy kind allows.
type PolicyShape struct {
	Top []string // kinds allowed in the top-level targetRef
	// TopFromOnly lists further kinds for the top-level targetRef that are allowed only without to:
	// routes that are matched on inbound traffic.
	TopFromOnly []string
	// TopToOnly lists further kinds for the top-level targetRef that are allowed only without from.
	TopToOnly []string
	// MeshName is true if kind Mesh may have a name and kind MeshService may have tags, as in the
	// design of MeshAccessLog.
	MeshName bool
	From     []string // kinds allowed in a from item; empty: from is rejected
	To       []string // kinds allowed in a to item; empty: to is rejected
	// Rules is true for kinds with spec.rules, and RuleMatches if a rule may match clients.
	// NoMatches gives the reason if it may not, and the alternative.
	Rules, RuleMatches bool
	NoMatches          string
	// RulesApart is true if each rule acts on the clients that it matches, whatever other rules do.
	// FromAsRules is true if items of from act as rules without matches.
	RulesApart, FromAsRules bool
	// NewRuleConf returns an empty conf of rules; nil if rules have the conf of from. Rules with a
	// separate conf type are not merged: each of them applies.
	NewRuleConf func() Conf
	// NoItems is true for kinds whose policies may have no item, and then no effect.
	NoItems bool
	// Default is true for kinds with spec.default.
	Default bool
	// Inline is true if the conf consists of the fields of an item next to targetRef
	// (MeshHTTPRoute: hostnames, rules), and false if it is below default.
	Inline bool
	// NewConf returns an empty conf.
	NewConf func() Conf
	// Check, if set, is the plugin's additional check. It runs last.
	Check func(p *Policy, v *Validator)
	// CheckLabels, if set, is a check that depends on the labels of the policy.
	CheckLabels func(p *Policy, labels map[string]string, v *Validator)
}

// LegacyPolicy holds the structure of the source-destination policies (legacy).
type LegacyPolicy struct {
	Shape        *LegacyShape     `json:"-"`
	Sources      []LegacySelector `json:"sources,omitempty"`      // connections from
	Destinations []LegacySelector `json:"destinations,omitempty"` // connections to
	Selectors    []LegacySelector `json:"selectors,omitempty"`    // ProxyTemplate: the proxies
	Conf         Conf             `json:"conf,omitempty"`         // nil if the document has none
}

// LegacyShape defines the fields that a legacy kind allows.
type LegacyShape struct {
	// Selectors is true for kinds that select proxies (ProxyTemplate). The others select
	// connections by sources and destinations.
	Selectors bool
	// NewConf returns an empty conf; nil for kinds without one (TrafficPermission).
	NewConf func() Conf
	// ConfRequired is true if a policy needs a conf.
	ConfRequired bool
}

// LegacySelector matches tags; the value "*" matches any.
type LegacySelector struct {
	Match map[string]string `json:"match"`
}

// Validate checks the structure that all policies share, and then the confs.
func (p *Policy) Validate(v *Validator) {
	s := p.Shape
	if s == nil {
		s = &PolicyShape{}
	}
	p.validateTop(v, s)
	p.validateItems(v.Field("from"), s, p.From, s.From, true)
	p.validateRules(v.Field("rules"), s)
	p.validateItems(v.Field("to"), s, p.To, s.To, false)
	if !s.Default && !s.Inline && !s.NoItems && len(p.InboundItems()) == 0 && len(p.To) == 0 {
		switch {
		case len(s.From) > 0 && len(s.To) > 0:
			v.Faultf("the policy is empty: give from, to or both")
		case len(s.From) > 0:
			v.Field("from").Faultf("the policy is empty: give at least one item")
		case len(s.To) > 0:
			v.Field("to").Faultf("the policy is empty: give at least one item")
		}
	}
	if p.Default != nil {
		if s.Default {
			p.Default.Validate(v.Field("default"))
		} else {
			v.Field("default").Faultf("this kind has no default: move its content into an item of %s",
				strings.Join(s.lists(), " or "))
		}
	}
	if s.Check != nil {
		s.Check(p, v)
	}
}

func (p *Policy) validateLabels(v *Validator, labels map[string]string) {
	if p.Shape != nil && p.Shape.CheckLabels != nil {
		p.Shape.CheckLabels(p, labels, v)
	}
}

func (p *Policy) validateTop(v *Validator, s *PolicyShape) {
	if p.TargetRef == nil {
		return
	}
	at := v.Field("targetRef")
	kind := p.TargetRef.Kind
	switch {
	case slices.Contains(s.TopFromOnly, kind) && len(p.To) > 0:
		at.Field("kind").Faultf("%s matches inbound traffic and allows only from: move to into another "+
			"policy, whose targetRef has one of the kinds %s", kind, strings.Join(s.Top, ", "))
	case slices.Contains(s.TopToOnly, kind) && len(p.InboundItems()) > 0:
		field := p.InboundField()
		v.Field(field).Faultf("a policy on %s has no %s: move it into another policy, whose targetRef has one of the "+
			"kinds %s", kind, field, strings.Join(s.Top, ", "))
	}
	p.TargetRef.validate(at, slices.Concat(s.Top, s.TopFromOnly, s.TopToOnly), s.MeshName, s.MeshName)
}

func (p *Policy) validateItems(list *Validator, s *PolicyShape, items []PolicyItem, kinds []string, arrives bool) {
	if len(items) > 0 && len(kinds) == 0 {
		list.Faultf("this kind has no such list: move its items into %s", strings.Join(s.lists(), " or "))
		return
	}
	for i := range items {
		v := list.Index(i)
		items[i].TargetRef.validate(v.Field("targetRef"), kinds, s.MeshName, arrives && s.MeshName)
		switch {
		case items[i].Conf == nil:
			v.Faultf("the conf is missing")
		case s.Inline:
			items[i].Conf.Validate(v)
		default:
			items[i].Conf.Validate(v.Field("default"))
		}
	}
}

// Ref checks a reference in a conf: its kind against those allowed there, and the other fields
// against the kind.
func (v *Validator) Ref(t *TargetRef, kinds ...string) { t.validate(v, kinds, false, false) }

// validate checks the kind against those allowed here, and the other fields against the kind.
func (t *TargetRef) validate(v *Validator, kinds []string, meshName, serviceTags bool) {
	if !v.Field("kind").OneOf(t.Kind, kinds...) {
		return
	}
	name, labels, tags, section, proxies := false, false, false, false, false
	switch t.Kind {
	case "Mesh":
		name, proxies = meshName, true
	case "MeshSubset":
		tags, proxies = true, true
	case "MeshServiceSubset", "MeshGateway":
		name, tags = true, true
	case "MeshService", "MeshExternalService", "MeshMultiZoneService":
		name, labels, section = true, true, true
		tags = serviceTags && t.Kind == "MeshService"
	case "Dataplane":
		name, labels, section, proxies = true, true, true, true
	default: // routes
		name, labels = true, true
	}
	refuse := func(allowed, set bool, field string) {
		v.unset(set && !allowed, field, "%s does not go with kind %s%s", field, t.Kind, t.instead(field, kinds))
	}
	refuse(name, t.Name != "", "name")
	refuse(name && t.Kind != "Mesh" && t.Kind != "MeshServiceSubset", t.Namespace != "", "namespace")
	refuse(labels, len(t.Labels) > 0, "labels")
	refuse(tags, len(t.Tags) > 0, "tags")
	refuse(section, t.SectionName != "", "sectionName")
	refuse(false, t.Mesh != "", "mesh")
	refuse(proxies, len(t.ProxyTypes) > 0, "proxyTypes")
	switch {
	case !name || t.Kind == "Mesh" || t.Kind == "Dataplane" && t.Name == "":
	case labels && len(t.Labels) > 0:
		v.unset(t.Name != "", "name", "labels exclude a name: keep the name to select only %s, because labels select all "+
			"that have them", strict.Quote(t.Name))
		v.unset(t.Namespace != "", "namespace", "labels exclude a namespace: add the label %s: %s instead",
			LabelNamespace, strict.Quote(t.Namespace))
	case t.Name == "" && t.Namespace != "" && t.ofNamespace():
	case t.Name == "" && labels:
		v.Field("name").Faultf("the name is missing: kind %s is named, or selected by labels", t.Kind)
	case t.Name == "":
		v.Field("name").Faultf("the name is missing: kind %s is named", t.Kind)
	}
	if name && t.Name != "" {
		if reason := nameFault(t.Name); reason != "" && !(t.Kind == "MeshServiceSubset" || t.Kind == "MeshService") {
			v.Field("name").Faultf("%s", reason)
		} else if reason != "" && !tagChars(t.Name, false) { // a value of the tag kuma.io/service is also allowed
			v.Field("name").Faultf("%s is not the name of a service", strict.Quote(t.Name))
		}
	}
	if labels {
		v.Field("labels").matchLabels(t.Labels)
	}
	if tags {
		v.Field("tags").Tags(t.Tags, false)
	}
	for i, p := range t.ProxyTypes {
		v.Field("proxyTypes").Index(i).OneOf(p, "Sidecar", "Gateway")
	}
}

// ofNamespace reports whether a reference of this kind may have a namespace without a name. It then
// selects all services of the namespace.
func (t *TargetRef) ofNamespace() bool { return slices.Contains(backendKinds[:], t.Kind) }

// instead says which reference has a field that t must not have, and never that the field can be
// omitted, because the reference would then select more. kinds are the allowed kinds.
func (t *TargetRef) instead(field string, kinds []string) string {
	var with []string
	switch field {
	case "labels":
		if t.Kind == "MeshSubset" || t.Kind == "MeshServiceSubset" {
			return ", which selects by tags: move the values into tags"
		}
		with = []string{"Dataplane", "MeshService", "MeshSubset"}
	case "tags":
		with = []string{"MeshSubset", "MeshServiceSubset"}
	case "name":
		with = []string{"Dataplane", "MeshService", "MeshServiceSubset"}
	case "sectionName", "namespace":
		with = []string{"Dataplane", "MeshService"}
	case "proxyTypes":
		with = []string{"Mesh", "MeshSubset"}
	case "mesh":
		return ": apply the policy in this mesh, because a policy acts only in its own"
	}
	with = slices.DeleteFunc(with, func(kind string) bool { return !slices.Contains(kinds, kind) })
	if len(with) == 0 {
		return ", and no kind that is allowed here has it: without it, the reference selects more"
	}
	return fmt.Sprintf(": to select fewer, give kind %s", strings.Join(with, " or "))
}

// lists returns the lists of items that a policy of this kind may have.
func (s *PolicyShape) lists() (out []string) {
	for _, x := range []struct {
		field string
		kinds []string
	}{{"from", s.From}, {"to", s.To}} {
		if len(x.kinds) > 0 {
			out = append(out, x.field)
		}
	}
	if s.Rules {
		out = append(out, "rules")
	}
	if s.Default {
		out = append(out, "default")
	}
	return out
}

// Validate checks the selectors, then the conf.
func (p *LegacyPolicy) Validate(v *Validator) {
	s := p.Shape
	if s == nil {
		s = &LegacyShape{}
	}
	if s.Selectors {
		validateSelectors(v.Field("selectors"), p.Selectors)
	} else {
		validateSelectors(v.Field("sources"), p.Sources)
		validateSelectors(v.Field("destinations"), p.Destinations)
	}
	switch {
	case p.Conf != nil:
		p.Conf.Validate(v.Field("conf"))
	case s.ConfRequired:
		v.Field("conf").Faultf("the conf is missing")
	}
}

func validateSelectors(list *Validator, sel []LegacySelector) {
	if len(sel) == 0 {
		list.Faultf("the list is empty: give at least one match")
	}
	for i := range sel {
		v := list.Index(i).Field("match")
		v.Tags(sel[i].Match, true)
		if _, ok := sel[i].Match[TagService]; !ok {
			v.Key(TagService).Faultf("the tag is missing: give the name of a service or *")
		}
	}
}
