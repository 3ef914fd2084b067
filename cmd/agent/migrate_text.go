package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/client"
	"github.com/nearside-mesh/nearside/agent/offline"
)

// A report for people lists the changes of so many dataplanes, and so many of each reason.
const (
	maxProxies   = 20
	maxPerReason = 20
)

// changesText lists what changes on dataplanes at one step: by reason, and first what has none.
func changesText(w io.Writer, title string, proxies []offline.MigratedProxy, of func(*offline.MigratedProxy) []offline.MigrationChange) {
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
		fmt.Fprintf(w, "%s: nothing changes on %s\n", title, count(len(proxies), "dataplane"))
		return
	}
	fmt.Fprintf(w, "%s:\n", title)
	shown := 0
	for i := range proxies {
		list := of(&proxies[i])
		if len(list) == 0 {
			continue
		}
		if shown++; shown > maxProxies {
			fmt.Fprintf(w, "  … and %d more dataplanes; --dataplane NAME shows one, -o json all\n", changed-maxProxies)
			break
		}
		proxyChanges(w, proxies[i].Name, list)
	}
	if len(same) > 0 {
		fmt.Fprintf(w, "  nothing changes on %s\n", some(same))
	}
}

// proxyChanges lists what changes on one dataplane.
func proxyChanges(w io.Writer, name string, list []offline.MigrationChange) {
	open, same := 0, 0
	var reasons []string
	by := map[string][]offline.MigrationChange{}
	for _, c := range list {
		why := strings.Join(c.Why, "; ")
		switch {
		case why == "":
			open++
			why = "LOOK AT THIS: no reason is known"
		case c.Same:
			same++
			why += " (Envoy does the same)"
		}
		switch {
		case by[why] != nil:
		case len(c.Why) == 0:
			reasons = slices.Insert(reasons, 0, why) // first of all
		default:
			reasons = append(reasons, why)
		}
		by[why] = append(by[why], c)
	}
	fmt.Fprintf(w, "  %s: %s", name, count(len(list), "change"))
	switch {
	case open > 0:
		fmt.Fprintf(w, ", %d to look at", open)
	case same == len(list):
		fmt.Fprint(w, ", without effect")
	}
	fmt.Fprintln(w)
	for _, why := range reasons {
		fmt.Fprintf(w, "    %s\n", why)
		for i, c := range by[why] {
			if i == maxPerReason {
				fmt.Fprintf(w, "      … and %d more; -o json has all\n", len(by[why])-i)
				break
			}
			fmt.Fprintf(w, "      %s\n", changeText(&c))
		}
	}
}

// changeText is one change in a line, as diff writes it.
func changeText(c *offline.MigrationChange) string {
	if c.Op != "remove" && c.Value == nil {
		c.Value = json.RawMessage("null")
	}
	f := client.FieldChange{Path: c.Field, Before: c.Before, After: c.Value}
	return fmt.Sprintf("%s %s %s: %s", shortType(c.Type), c.Name, shortPath(f.Path), fieldText(&f))
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
