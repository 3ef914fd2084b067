package text

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/answer/effect"
	"github.com/nearside-mesh/nearside/agent/answer/explain"
	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/model/api"
)

// Rules writes rules for people: the policies in merge order, and the source of each field.
func Rules(w io.Writer, doc *explain.Rules) {
	if len(doc.Rules) == 0 {
		Printf(w, "no policy selects the dataplane %s\n", doc.Resource.Name)
		return
	}
	for i, k := range doc.Rules {
		if i > 0 {
			Println(w)
		}
		Println(w, k.Type)
		p := RulePrinter{W: w, ordered: true}
		if r := k.ProxyRule; r != nil {
			p.rule("proxy", r.Fields, Each(r.Origin, metaName))
		}
		for _, r := range k.ToRules {
			p.rule("to "+matchersText(r.Matchers, "all services"), r.Fields, Each(r.Origin, metaName))
		}
		for _, r := range k.ToResourceRules {
			about := r.ResourceMeta.Type + "/" + r.ResourceMeta.Name
			switch {
			case r.ResourceMeta.Type == "Mesh":
				about = "all MeshService resources"
			case r.ResourceSectionName != "":
				about += ", port " + r.ResourceSectionName
			}
			var names []string
			for _, o := range r.Origin {
				names = append(names, o.ResourceMeta.Name)
			}
			p.rule("to "+about, r.Fields, names)
		}
		for _, f := range k.Clients() {
			for _, r := range f.Rules {
				about := fmt.Sprintf("inbound %d, from %s", f.Inbound.Port, ClientsText(r.Matchers, r.Match, r.Match != nil))
				if r.Route != nil {
					about += ", requests of " + r.Route.Type + "/" + r.Route.Name
				}
				p.rule(about, r.Fields, Each(r.Origin, metaName))
			}
		}
		entries(&p, doc, i)
		p.Flush()
		for _, warning := range k.Warnings {
			Printf(w, "  warning: %s\n", warning)
		}
	}
	if len(doc.HTTPMatches) == 0 {
		return
	}
	Println(w)
	t := NewTable(w, "ROUTE", "MATCHES")
	for _, m := range doc.HTTPMatches {
		t.Row(m.Hash, Short(string(m.Match), 100))
	}
	t.Flush()
}

// entries writes the entries of spec.rules that are not merged into the rules above.
func entries(p *RulePrinter, doc *explain.Rules, i int) {
	k := &doc.Rules[i]
	merged := map[string]bool{}
	for _, f := range k.Clients() {
		for _, r := range f.Rules {
			for _, o := range r.Origin {
				merged[o.Name] = true
			}
		}
	}
	for _, f := range k.InboundRules {
		for _, r := range f.Rules {
			for i, o := range r.Origin {
				if !merged[o.ResourceMeta.Name] && i < len(r.Conf) {
					p.Add(fmt.Sprintf("inbound %d, rules[%d] of %s", f.Inbound.Port, o.RuleIndex, o.ResourceMeta.Name),
						"    "+Short(string(r.Conf[i]), 160)+"\n")
				}
			}
		}
	}
}

// RulePrinter writes rules. Rules with the same text share one block.
type RulePrinter struct {
	W io.Writer
	// ordered keeps the order for rules of which the first match wins: only adjacent rules share a
	// block.
	ordered bool
	blocks  []ruleBlock
}

type ruleBlock struct {
	about []string
	text  string
}

func (p *RulePrinter) rule(about string, fields []explain.Field, merged []string) {
	var b strings.Builder
	Printf(&b, "    merged: %s\n", strings.Join(slices.Compact(merged), ", "))
	t := NewTable(&b, "    FIELD", "VALUE", "FROM", "OVER")
	for _, f := range fields {
		var over []string
		for _, o := range f.Over {
			over = append(over, fmt.Sprintf("%s (%s)", SourceText(o.Source), ValueText(o.Value)))
		}
		t.Row("    "+f.Path, ValueText(f.Value), strings.Join(Each(f.By, SourceText), ", "), strings.Join(over, ", "))
	}
	t.Flush()
	p.Add(about, b.String())
}

// Add adds a rule. text consists of complete lines.
func (p *RulePrinter) Add(about, text string) {
	about = clip.Printable(about)
	first := 0
	if p.ordered {
		first = max(0, len(p.blocks)-1)
	}
	for i := first; i < len(p.blocks); i++ {
		if p.blocks[i].text == text {
			p.blocks[i].about = append(p.blocks[i].about, about)
			return
		}
	}
	p.blocks = append(p.blocks, ruleBlock{[]string{about}, text})
}

func (p *RulePrinter) Flush() {
	for _, b := range p.blocks {
		Printf(p.W, "  %s\n%s", Layout(strings.Join(b.about, "\n  ")), Layout(b.text))
	}
}

// Policies writes the policies that select a dataplane, and what the dataplane reaches.
func Policies(w io.Writer, doc *explain.Policies, backend string) {
	t := NewTable(w, "KIND", "NAME", "EFFECT", "INBOUNDS", "OUTBOUNDS", "REASON")
	for _, p := range doc.Items {
		in := Each(p.Inbounds, InboundPort)
		if p.Gateway {
			in = append(in, "gateway")
		}
		t.Row(p.Type, p.Name, p.Effect, Some(in), Some(Texts(p.Outbounds)), p.Reason)
	}
	t.Flush()
	for _, p := range doc.Items {
		for _, warning := range p.Warnings {
			Printf(w, "warning: %s/%s: %s\n", p.Type, p.Name, warning)
		}
	}
	Println(w)
	Reach(w, doc.Reach, backend)
}

// PolicyExplanation writes the explanation of a policy for people.
func PolicyExplanation(w io.Writer, x *explain.Policy) {
	verdict := "not selected"
	if x.Selected {
		verdict = "selected, " + policyState(x)
	}
	Printf(w, "%s on %s: %s\n  %s\n", x.Policy, x.Dataplane, verdict, x.Reason)
	if len(x.Inbounds) > 0 {
		Printf(w, "  inbounds: %s\n", strings.Join(Each(x.Inbounds, InboundPort), ", "))
	}
	for i := range x.Items {
		it := &x.Items[i]
		Printf(w, "\n%s", it.Field)
		if it.About != "" {
			Printf(w, ", %s", it.About)
		}
		if it.Reason != "" {
			Printf(w, ": no effect: %s", it.Reason)
		}
		Println(w)
		p := RulePrinter{W: w}
		for j := range it.Places {
			placeText(&p, &it.Places[j])
		}
		p.Flush()
	}
	if len(x.Warnings) > 0 {
		Println(w)
	}
	for _, warning := range x.Warnings {
		Printf(w, "warning: %s\n", warning)
	}
}

// policyState returns the state of a policy that selects a proxy.
func policyState(x *explain.Policy) string {
	by := strings.Join(Texts(x.By), ", ")
	state := ""
	switch {
	case x.Effect == api.EffectAll:
		state = "fully in force"
	case x.Effect == api.EffectPart:
		state = "partly in force"
	case x.Effect == api.EffectSame:
		return "changes nothing: same values as " + by
	case x.Effect == api.EffectDefault:
		return "changes nothing: the values are the defaults"
	case x.Effect == api.EffectUnknown && x.Held != "":
		state = "effect unknown"
	case x.Effect == api.EffectUnknown:
		return "effect unknown: it takes too many configs to find it"
	case x.Held != "":
		state = "not in force"
	case x.WhyNot != "":
		return "no effect: " + x.WhyNot
	case by != "":
		return "no effect: overridden by " + by
	default:
		return "no effect"
	}
	if x.Held != "" {
		state += ": " + x.Held
	}
	return state
}

// placeText writes the effect of a policy item at one place of the config.
func placeText(out *RulePrinter, p *explain.Place) {
	names := Texts(p.Outbounds)
	about := "the proxy"
	switch p.On {
	case "inbound":
		about = fmt.Sprintf("inbound %d, from %s", p.Inbound.Port, ClientsText(p.Matchers, p.Match, p.Match != nil))
		if p.Route != "" {
			about += ", requests of the route " + p.Route
		}
	case "outbounds":
		about = "outbounds " + Some(names)
	case effect.OnOutside:
		about = "connections to other destinations"
	case "route":
		about = "route " + p.Route
		if len(names) > 0 {
			about += " of " + Some(names)
		}
	}
	var b strings.Builder
	t := NewTable(&b, "    FIELD", "VALUE", "STATE")
	for _, f := range p.Fields {
		by := Each(f.By, func(s explain.Source) string { return s.Type + "/" + SourceText(s) })
		t.Row("    "+cmp.Or(f.Path, "(whole)"), ValueText(f.Value),
			fieldState(f.Effect, strings.Join(by, ", "), f.Reason))
	}
	t.Flush()
	out.Add("on "+about, b.String())
}

// fieldState returns the state of a field, and what else sets it.
func fieldState(effect, by, reason string) string {
	out := "no effect"
	switch {
	case effect == api.EffectAll && by == "":
		return "in force"
	case effect == api.EffectAll:
		return "in force, merged with " + by
	case effect == api.EffectPart && by == "":
		return "partly in force"
	case effect == api.EffectPart:
		return "partly in force, merged with " + by
	case effect == api.EffectSame:
		return "same value as " + by
	case effect == api.EffectDefault:
		return "equals the default"
	case effect == api.EffectUnknown:
		return "unknown"
	case by != "":
		return "overridden by " + by
	}
	if reason != "" {
		out += ": " + reason
	}
	return out
}
