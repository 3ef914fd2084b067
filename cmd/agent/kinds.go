package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/client"
)

func (a *app) apiResourcesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "api-resources",
		Short: "List the types of resources",
		Long: `Lists the types of resources that the agent knows, in the order in which policies act: the name of each for TYPE, its short name, kind,
whether its resources belong to a mesh, and whether it is a policy or a legacy one.`,
		Example: "  nearside api-resources\n  nearside api-resources -o json | jq -r '.[] | select(.policy) | .plural'",
		Args:    args(0, 0, "no arguments"),
	}
	format := outputFlag(cmd, "table", "json", "yaml", "name")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		kinds, err := a.client().Kinds(cmd.Context())
		if err != nil {
			return err
		}
		if *format == "name" {
			for _, k := range kinds {
				printLine(a.stdout, k.Plural)
			}
			return nil
		}
		if ok, err := a.printed(*format, kinds); ok {
			return err
		}
		t := newTable(a.stdout, "NAME", "SHORT", "KIND", "MESHED", "ACTS AS")
		for _, k := range kinds {
			as := ""
			switch {
			case k.Legacy:
				as = "legacy policy"
			case k.Policy:
				as = "policy"
			}
			t.row(k.Plural, k.Short, k.Kind, fmt.Sprint(!k.Global), as)
		}
		return t.Flush()
	}
	return cmd
}

// selector chooses resources by their labels, and by their tags too: KEY=VALUE, or KEY for any value; all of them hold.
type selector []string

// parseSelector reads -l.
func parseSelector(text string) (selector, error) {
	if text == "" {
		return nil, nil
	}
	out := selector(strings.Split(text, ","))
	for _, term := range out {
		if key, _, _ := strings.Cut(term, "="); key == "" || strings.ContainsAny(key, "! ()") {
			return nil, usagef("-l %q is not possible; give KEY=VALUE or KEY, several with commas between them", text)
		}
	}
	return out, nil
}

// of returns the items that it chooses.
func (s selector) of(items []client.Item) (out []client.Item, err error) {
	if len(s) == 0 {
		return items, nil
	}
	for _, it := range items {
		d, err := readDocument(it)
		if err != nil {
			return nil, err
		}
		if s.chooses(d) {
			out = append(out, it)
		}
	}
	return out, nil
}

func (s selector) chooses(d *document) bool {
	sets := []map[string]string{d.Labels, d.Tags}
	if g := d.Networking.Gateway; g != nil {
		sets = append(sets, g.Tags)
	}
	for _, in := range d.Networking.Inbound {
		sets = append(sets, in.Tags)
	}
	for _, term := range s {
		key, value, exact := strings.Cut(term, "=")
		held := false
		for _, set := range sets {
			got, ok := set[key]
			held = held || ok && (!exact || got == value)
		}
		if !held {
			return false
		}
	}
	return true
}
