package text

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/base/jsonpatch"
	"github.com/nearside-mesh/nearside/agent/base/plural"
	"github.com/nearside-mesh/nearside/agent/model/api"
)

// Diff writes a comparison for people: the resources, and then the changes on each proxy.
func Diff(w io.Writer, d *api.Diff) {
	if len(d.Resources) > 0 {
		diffResources(w, d)
		Println(w)
	}
	DiffProxies(w, d)
}

// DiffProxies writes the changes on each proxy. Proxies with the same changes share one block.
func DiffProxies(w io.Writer, d *api.Diff) {
	var p RulePrinter
	for i := range d.Proxies {
		p.Add(d.Proxies[i].Mesh+"/"+d.Proxies[i].Name, proxyDiffText(&d.Proxies[i]))
	}
	for _, b := range p.blocks {
		Println(w, Layout(strings.Join(b.about, "\n")+"\n"+b.text))
	}
	Println(w, diffCount(d))
}

// diffResources writes the changes of resources.
func diffResources(w io.Writer, d *api.Diff) {
	for _, r := range d.Resources {
		line := TypeAndName(r.Type, r.Name) + InMesh(r.Mesh) + " " + r.Action
		switch {
		case r.Action == "activated":
			line = strings.TrimSuffix(line, r.Action) + "would take effect without its label kuma.io/effect: shadow"
		case r.Shadow && r.Action != "deleted":
			line += ", a shadow policy"
		}
		if r.Owner != "" && r.Action != "activated" && r.Action != "unchanged" {
			line += "; managed by " + r.Owner + ", change it there"
		}
		Println(w, line)
		for _, f := range r.Fields {
			Println(w, "  "+fieldChange(f))
		}
	}
}

// diffCount returns how many proxies change, as text.
func diffCount(d *api.Diff) string {
	changed := 0
	for _, p := range d.Proxies {
		if p.Action != "unchanged" {
			changed++
		}
	}
	what := "dataplane"
	if d.Scope == "connected" {
		what = "connected proxy"
	}
	of := plural.Count(d.Compared, what)
	return plural.Form(changed, "1 of "+of+" changes", "%d of "+of+" change")
}

// proxyDiffText returns the changes on one proxy.
func proxyDiffText(p *api.ProxyDiff) string {
	var b strings.Builder
	switch p.Action {
	case "created":
		Println(&b, "  a new proxy")
	case "deleted":
		Println(&b, "  the proxy would be removed: its client gets no config")
	case "failed":
		Printf(&b, "  no config can be computed, so a client keeps its current one: %s\n", p.Error)
	case "unchanged":
		Println(&b, "  the config stays the same")
		if !p.Truncated && len(p.Rules.Items) == 0 {
			Println(&b, "  the rules stay the same, but come from other policies")
		}
	}
	if p.Truncated {
		Printf(&b, "  too many changes to list with other proxies; --dataplane %s -m %s lists them\n", p.Name, p.Mesh)
	}
	if p.Unattributed {
		Printf(&b, "  too many resources to find the cause of each change; try --dataplane %s -m %s\n",
			p.Name, p.Mesh)
	}
	ConfigItems(&b, &p.Config)
	RuleItems(&b, &p.Rules)
	return b.String()
}

// ConfigItems writes the changed resources of a config.
func ConfigItems(w io.Writer, p *api.PartDiff) {
	diffItems(w, p.Items, func(it *api.ItemDiff) string { return ShortType(it.Type) })
}

// RuleItems writes the changed rules.
func RuleItems(w io.Writer, p *api.PartDiff) {
	diffItems(w, p.Items, func(it *api.ItemDiff) string { return "rule of " + it.Type })
}

// diffItems writes resources or rules. Those with the same changes share one line.
func diffItems(w io.Writer, items []api.ItemDiff, kind func(*api.ItemDiff) string) {
	type block struct {
		head, text string
		names      []string
	}
	var blocks []block
	at := map[[2]string]int{}
	for i := range items {
		it := &items[i]
		x := block{head: map[string]string{"created": "+ ", "deleted": "- "}[it.Action] + kind(it), text: fieldsText(it)}
		k := [2]string{x.head, hostName.ReplaceAllString(x.text, hostless)}
		n, ok := at[k]
		if !ok {
			n = len(blocks)
			at[k], blocks = n, append(blocks, x)
		}
		if blocks[n].text != x.text {
			blocks[n].text = k[1]
		}
		blocks[n].names = append(blocks[n].names, it.Name)
	}
	for _, x := range blocks {
		Printf(w, "  %s %s%s\n", x.head, Some(x.names), Layout(x.text))
	}
}

// hostName matches the name of a virtual host, which often is the only difference between two
// outbounds.
var hostName = regexp.MustCompile(`virtualHosts\[[^\]]*\]`)

const hostless = "virtualHosts[…]"

// fieldsText returns the changes of a resource or rule on lines below its name, or the cause on the
// same line.
func fieldsText(it *api.ItemDiff) string {
	if len(it.Changes) == 0 {
		return clip.Printable(byText(it.By))
	}
	var b strings.Builder
	for _, f := range it.Changes {
		Printf(&b, "\n    %s: %s%s", ShortPath(f.Path), FieldText(&f.FieldChange), byText(f.By))
	}
	return b.String()
}

// FieldText returns the change of a field.
func FieldText(f *jsonpatch.FieldChange) string {
	switch {
	case f.Before == nil:
		return "added " + jsonText(f.After)
	case f.After == nil:
		return "removed, was " + jsonText(f.Before)
	}
	return jsonText(f.Before) + " → " + jsonText(f.After)
}

func refText(r api.Ref) string { return r.Type + "/" + r.Name }

func byText(refs []api.Ref) string {
	if len(refs) == 0 {
		return ""
	}
	return "  (" + Some(Each(refs, refText)) + ")"
}

// jsonText returns a value on one line, unquoted where that is unambiguous, and clipped if it is
// long.
func jsonText(raw json.RawMessage) string {
	var b bytes.Buffer
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return Short(string(raw), 80)
	}
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return Short(string(raw), 80)
	}
	s := strings.TrimSuffix(b.String(), "\n")
	if text, ok := v.(string); ok && text != "" && `"`+text+`"` == s {
		s = text
	}
	return Short(s, 80)
}

// ShortPath shortens a path for people: it drops the typed config wrapper and the prefixes of
// Envoy's long names.
func ShortPath(path string) string {
	if path == "" {
		return "(whole)"
	}
	path = strings.ReplaceAll(path, ".typedConfig", "")
	return longName.ReplaceAllString(path, "[$1]")
}

var longName = regexp.MustCompile(`\[envoy\.[^\[\]]*\.([^.\[\]]+)\]`)

// ShortType returns the name of a message type without its package.
func ShortType(url string) string { return url[strings.LastIndex(url, ".")+1:] }

// DiffSummary writes one line per proxy.
func DiffSummary(w io.Writer, d *api.Diff) {
	if len(d.Proxies) > 0 {
		summaryTable(w, d)
		Println(w)
	}
	Println(w, diffCount(d))
}

func summaryTable(w io.Writer, d *api.Diff) {
	var types []string
	for _, p := range d.Proxies {
		types = append(types, Each(p.Config.Summary, func(t api.TypeDiff) string { return t.Type })...)
	}
	slices.Sort(types)
	types = slices.Compact(types)
	columns := Each(types, func(t string) string { return strings.ToUpper(ShortType(t)) })
	t := NewTable(w, slices.Concat([]string{"MESH", "PROXY", "CONFIG"}, columns, []string{"RULES", "BY"})...)
	for _, p := range d.Proxies {
		cells := append([]string{p.Mesh, p.Name, p.Action}, make([]string, len(types))...)
		for _, s := range p.Config.Summary {
			cells[3+slices.Index(types, s.Type)] = typeCounts(s)
		}
		rules := Each(p.Rules.Summary, func(s api.TypeDiff) string { return s.Type + " " + typeCounts(s) })
		t.Row(append(cells, Some(rules), Some(Each(p.Policies, refText)))...)
	}
	t.Flush()
}

// typeCounts returns +added ~changed -removed.
func typeCounts(s api.TypeDiff) string {
	var out []string
	for _, c := range []struct {
		sign string
		n    int
	}{{"+", s.Added}, {"~", s.Changed}, {"-", s.Removed}} {
		if c.n > 0 {
			out = append(out, fmt.Sprint(c.sign, c.n))
		}
	}
	return strings.Join(out, " ")
}

// DiffWarnings writes the warnings and findings of a change.
func DiffWarnings(notes io.Writer, d *api.Diff) {
	for _, w := range d.Warnings {
		Printf(notes, "warning: %s: %s\n", w.Resource, w.Reason)
	}
	refused := 0
	for i := range d.Findings {
		f := &d.Findings[i]
		if f.Blocks() {
			refused++
			Printf(notes, "would break: %s\n", f.Line())
		} else {
			Printf(notes, "warning: %s\n", f.Line())
		}
	}
	if refused > 0 {
		Println(notes, "apply would refuse this change: Envoy could not use the resulting config")
	}
}

// Author returns the author of a change with the signature, if there is one.
func Author(name string, by api.Author) string { return cmp.Or(by.String(), name) }

// History writes the revisions of a resource.
func History(w io.Writer, h *api.History) {
	Rows(w, h.Items, func(r api.Revision) []string {
		return []string{fmt.Sprint(r.Revision), r.Action, r.Source, Author(r.Author, r.SignedBy), Age(r.Time),
			fields(r.Fields)}
	}, "REVISION", "CHANGE", "SOURCE", "AUTHOR", "AGE", "FIELDS")
}

// WriteResult writes the names of written resources. With details, it adds the action and the
// changed fields.
func WriteResult(w io.Writer, x *api.Written, details bool) {
	for _, c := range x.Changes {
		Printf(w, "%s", TypeAndName(c.Type, c.Name))
		if !details {
			Println(w)
			continue
		}
		Printf(w, "%s %s", InMesh(c.Mesh), c.Action)
		if x.DryRun {
			Printf(w, " (dry run)")
		} else if c.Revision > 0 {
			Printf(w, ", revision %d", c.Revision)
		}
		for _, f := range c.Fields {
			Printf(w, "\n  %s", fieldChange(f))
		}
		Println(w)
	}
}
