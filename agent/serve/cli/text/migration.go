package text

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/answer/offline"
	"github.com/nearside-mesh/nearside/agent/base/jsonpatch"
	"github.com/nearside-mesh/nearside/agent/base/plural"
)

// Migration writes the report of a migration for people.
func Migration(w io.Writer, m *offline.Migration) {
	if len(m.Policies)+len(m.Without) == 0 {
		Printf(w, "no legacy policies act in mesh %s\n", m.Mesh)
		return
	}
	for _, p := range m.Policies {
		Printf(w, "%s/%s, from %s\n", p.Type, p.Name, strings.Join(p.From, ", "))
		if p.Stored {
			Println(w, "  a stored shadow policy has this name; this policy would replace it")
		}
		for _, n := range p.Notes {
			Printf(w, "  note: %s\n", n)
		}
	}
	for _, l := range m.Without {
		Printf(w, "no policy, from %s: %s\n", l.Policy, l.Why)
	}
	for _, warning := range m.Warnings {
		Printf(w, "warning: %s\n", warning)
	}
	changesText(w, "when the new policies take effect",
		m.Dataplanes, func(p *offline.MigratedProxy) []offline.MigrationChange { return p.Live })
	changesText(w, "when the legacy policies are deleted after that",
		m.Dataplanes, func(p *offline.MigratedProxy) []offline.MigrationChange { return p.Deleted })
}

// Limits of the report: dataplanes, and changes per reason.
const (
	maxProxies   = 20
	maxPerReason = 20
)

// changesText lists the changes on dataplanes after one step of the migration, by reason.
// Unexplained changes come first.
func changesText(w io.Writer, title string, proxies []offline.MigratedProxy,
	of func(*offline.MigratedProxy) []offline.MigrationChange) {
	var same []string
	changed := 0
	for i := range proxies {
		if len(of(&proxies[i])) == 0 {
			same = append(same, proxies[i].Name)
		} else {
			changed++
		}
	}
	if changed == 0 {
		Printf(w, "\n%s: nothing changes on %s\n", title, plural.Count(len(proxies), "dataplane"))
		return
	}
	Printf(w, "\n%s:\n", title)
	shown := 0
	for i := range proxies {
		list := of(&proxies[i])
		if len(list) == 0 {
			continue
		}
		if shown++; shown > maxProxies {
			Printf(w, "  … and %s; --dataplane NAME shows one, -o json all\n",
				plural.Count(changed-maxProxies, "more dataplane"))
			break
		}
		proxyChanges(w, proxies[i].Name, list)
	}
	if len(same) > 0 {
		Printf(w, "  nothing changes on %s\n", Some(same))
	}
}

// proxyChanges lists the changes on one dataplane.
func proxyChanges(w io.Writer, name string, list []offline.MigrationChange) {
	open, same := 0, 0
	var reasons []string
	by := map[string][]offline.MigrationChange{}
	for _, c := range list {
		why := strings.Join(c.Why, "; ")
		switch {
		case why == "":
			open++
			why = "REVIEW: no known reason"
		case c.Same:
			same++
			why += " (Envoy does the same)"
		}
		switch {
		case by[why] != nil:
		case len(c.Why) == 0:
			reasons = slices.Insert(reasons, 0, why) // unexplained changes come first
		default:
			reasons = append(reasons, why)
		}
		by[why] = append(by[why], c)
	}
	Printf(w, "  %s: %s", name, plural.Count(len(list), "change"))
	switch {
	case open > 0:
		Printf(w, ", %d to review", open)
	case same == len(list):
		Printf(w, ", without effect")
	}
	Println(w)
	for _, why := range reasons {
		Printf(w, "    %s\n", why)
		for i, c := range by[why] {
			if i == maxPerReason {
				Printf(w, "      … and %d more; -o json has all\n", len(by[why])-i)
				break
			}
			Printf(w, "      %s\n", migratedText(&c))
		}
	}
}

// migratedText returns one change in a line, in the form of diff.
func migratedText(c *offline.MigrationChange) string {
	if c.Op != "remove" && c.Value == nil {
		c.Value = json.RawMessage("null")
	}
	f := jsonpatch.FieldChange{Path: c.Field, Before: c.Before, After: c.Value}
	return fmt.Sprintf("%s %s %s: %s", ShortType(c.Type), c.Name, ShortPath(f.Path), FieldText(&f))
}
