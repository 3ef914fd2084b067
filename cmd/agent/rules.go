package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/answer/offline"
	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/serve/client"
)

// inspectRules is inspect dataplane --type=rules.
func (a *app) inspectRules(cmd *cobra.Command, in *inspection, name, format string) error {
	diff, err := in.includes("diff", "diff", "fields")
	if err != nil {
		return err
	}
	fields, _ := in.includes("fields", "diff", "fields")
	fields = fields || format == "table"
	doc, err := answer(a, &in.files, func() (*client.Rules, error) {
		var include []string
		if diff {
			include = append(include, "diff")
		}
		if fields {
			include = append(include, "fields")
		}
		return a.client().Rules(cmd.Context(), a.mesh, name, in.shadow, include...)
	}, func(o *offline.Offline, zone string) (*client.Rules, []string, error) {
		return o.Rules(zone, a.mesh, name, offline.RulesOptions{Shadow: in.shadow, Diff: diff, Fields: fields})
	})
	return show(a, format, func(doc *client.Rules) error {
		if err := rulesText(a.stdout, doc); err != nil || !diff {
			return err
		}
		return a.inspectDiff(cmd.Context(), in, name, len(doc.Diff), func(p *client.ProxyDiff) {
			ruleItems(a.stdout, &p.Rules)
		})
	}, nil)(doc, err)
}

// rulesText writes rules for people: each with the policies in the order in which they were merged,
// and of each field where it comes from.
func rulesText(w io.Writer, doc *client.Rules) error {
	if len(doc.Rules) == 0 {
		printf(w, "no policy selects the dataplane %s\n", doc.Resource.Name)
		return nil
	}
	for i, k := range doc.Rules {
		if i > 0 {
			printLine(w)
		}
		printLine(w, k.Type)
		p := rulePrinter{w: w, ordered: true}
		if r := k.ProxyRule; r != nil {
			p.rule("proxy", r.Fields, each(r.Origin, metaName))
		}
		for _, r := range k.ToRules {
			p.rule("to "+matchersText(r.Matchers, "all services"), r.Fields, each(r.Origin, metaName))
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
		for _, f := range k.FromRules {
			for _, r := range f.Rules {
				about := fmt.Sprintf("inbound %d, from %s", f.Inbound.Port, clientsText(r.Matchers, r.Match, r.Match != nil))
				if r.Route != nil {
					about += ", requests of " + r.Route.Type + "/" + r.Route.Name
				}
				p.rule(about, r.Fields, each(r.Origin, metaName))
			}
		}
		entries(&p, doc, i)
		if err := p.flush(); err != nil {
			return err
		}
		for _, warning := range k.Warnings {
			printf(w, "  warning: %s\n", warning)
		}
	}
	if len(doc.HTTPMatches) == 0 {
		return nil
	}
	printLine(w)
	t := newTable(w, "ROUTE", "MATCHES")
	for _, m := range doc.HTTPMatches {
		t.row(m.Hash, short(string(m.Match), 100))
	}
	return t.Flush()
}

// entries writes the entries of spec.rules that are not merged into the rules above.
func entries(p *rulePrinter, doc *client.Rules, i int) {
	k := &doc.Rules[i]
	merged := map[string]bool{}
	for _, f := range k.FromRules {
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
					p.add(fmt.Sprintf("inbound %d, rules[%d] of %s", f.Inbound.Port, o.RuleIndex, o.ResourceMeta.Name),
						"    "+short(string(r.Conf[i]), 160)+"\n")
				}
			}
		}
	}
}

// rulePrinter writes rules below each other; those that say the same stand together.
type rulePrinter struct {
	w io.Writer
	// ordered keeps the order, as for rules of which the first that holds decides: only neighbours
	// stand together.
	ordered bool
	blocks  []ruleBlock
}

type ruleBlock struct {
	about []string
	text  string
}

func (p *rulePrinter) rule(about string, fields []client.Field, merged []string) {
	var b strings.Builder
	printf(&b, "    merged: %s\n", strings.Join(slices.Compact(merged), ", "))
	t := newTable(&b, "    FIELD", "VALUE", "FROM", "OVER")
	for _, f := range fields {
		var over []string
		for _, o := range f.Over {
			over = append(over, fmt.Sprintf("%s (%s)", place(o.Source), valueText(o.Value)))
		}
		t.row("    "+f.Path, valueText(f.Value), strings.Join(each(f.By, place), ", "), strings.Join(over, ", "))
	}
	_ = t.Flush() // a strings.Builder takes everything
	p.add(about, b.String())
}

// add takes a text of lines that end.
func (p *rulePrinter) add(about, text string) {
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

func (p *rulePrinter) flush() error {
	for _, b := range p.blocks {
		printf(p.w, "  %s\n%s", layout(strings.Join(b.about, "\n  ")), layout(b.text))
	}
	return nil
}

// place names an item of a policy: NAME to[0].
func place(s client.Source) string {
	if s.Field == "spec" { // the policy as a whole
		return s.Name
	}
	field := strings.TrimPrefix(s.Field, "spec.")
	if field != "default" {
		field = strings.TrimSuffix(field, ".default")
	}
	return s.Name + " " + field
}

func inboundPort(in client.Inbound) string { return fmt.Sprint(in.Port) }

func metaName(m client.ResourceMeta) string { return m.Name }

func matchersText(tags []client.Tag, none string) string {
	if len(tags) == 0 {
		return none
	}
	return strings.Join(each(tags, func(t client.Tag) string {
		if t.Not {
			return t.Key + "!=" + t.Value
		}
		return t.Key + "=" + t.Value
	}), ", ")
}

// clientsText names clients by their tags or by their certificates.
func clientsText(tags []client.Tag, match fmt.Stringer, matched bool) string {
	if matched {
		return match.String()
	}
	return matchersText(tags, "all clients")
}

// valueText is a value for a table: strings without quotes, long ones cut.
func valueText(raw []byte) string {
	s := string(raw)
	if len(s) > 2 && s[0] == '"' && !strings.ContainsAny(s[1:len(s)-1], `\"`) {
		s = s[1 : len(s)-1]
	}
	return short(s, 48)
}

// short cuts a text to so many characters.
func short(s string, most int) string {
	r := []rune(s)
	if len(r) <= most {
		return s
	}
	return string(r[:most-1]) + "…"
}

// inspectPolicies is inspect dataplane --type=policies.
func (a *app) inspectPolicies(cmd *cobra.Command, in *inspection, name, format string) error {
	doc, err := answer(a, &in.files, func() (*client.Policies, error) {
		return a.client().Policies(cmd.Context(), a.mesh, name, in.backend)
	}, func(o *offline.Offline, zone string) (*client.Policies, []string, error) {
		return o.Policies(zone, a.mesh, name, in.backend)
	})
	return show(a, format, func(doc *client.Policies) error { return a.policiesText(doc, in.backend) }, nil)(doc, err)
}

// policiesText writes the policies that select a dataplane, and what it reaches.
func (a *app) policiesText(doc *client.Policies, backend string) error {
	t := newTable(a.stdout, "KIND", "NAME", "EFFECT", "INBOUNDS", "OUTBOUNDS", "REASON")
	for _, p := range doc.Items {
		in := each(p.Inbounds, inboundPort)
		if p.Gateway {
			in = append(in, "gateway")
		}
		t.row(p.Type, p.Name, p.Effect, some(in), some(texts(p.Outbounds)), p.Reason)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, p := range doc.Items {
		for _, warning := range p.Warnings {
			printf(a.stdout, "warning: %s/%s: %s\n", p.Type, p.Name, warning)
		}
	}
	printLine(a.stdout)
	return reachText(a.stdout, doc.Reach, backend)
}

// some lists the first few of many.
func some(list []string) string {
	const most = 4
	if len(list) <= most {
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(list[:most-1], ", "), len(list)-most+1)
}
