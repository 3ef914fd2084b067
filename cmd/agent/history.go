package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/client"
)

func (a *app) historyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "history TYPE NAME",
		Short: "List the revisions of a resource",
		Long: `Lists the latest revisions of a resource, oldest first, deletions included; also of one that is deleted. Each says
what was changed, from which source (file, API, Envoy), by whom and when; -o yaml has the exact times and the content.`,
		Example:           "  nearside history meshtimeout slow\n  nearside history dataplane web -m shop -o yaml",
		Args:              args(1, 2, "TYPE NAME or TYPE/NAME"),
		ValidArgsFunction: a.completeTypeAndName,
	}
	a.meshFlag(cmd)
	var format string
	outputFlag(cmd, &format, "table", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r, err := a.reference(cmd.Context(), args)
		if err != nil {
			return err
		}
		h, err := a.client().History(cmd.Context(), r.kind.Plural, r.mesh, r.name)
		if err != nil {
			return err
		}
		if ok, err := a.printed(format, h); ok {
			return err
		}
		t := newTable(a.stdout, "REVISION", "CHANGE", "SOURCE", "AUTHOR", "AGE", "FIELDS")
		for _, rev := range h.Items {
			t.row(fmt.Sprint(rev.Revision), rev.Action, rev.Source, rev.Author, age(rev.Time), fields(rev.Fields))
		}
		return t.flush()
	}
	return cmd
}

// mostFields is how many fields a table names of one change.
const mostFields = 3

// fields tells in one cell what a change was about.
func fields(list []client.FieldChange) string {
	var s []string
	for _, f := range list[:min(len(list), mostFields)] {
		s = append(s, fieldChange(f))
	}
	if n := len(list) - mostFields; n > 0 {
		s = append(s, fmt.Sprintf("%d more", n))
	}
	return strings.Join(s, ", ")
}

// fieldChange is a field with what it was and is, long values cut short.
func fieldChange(f client.FieldChange) string {
	value := func(raw []byte) string { return short(string(raw), 41) }
	switch {
	case f.Before == nil:
		return f.Path + " = " + value(f.After)
	case f.After == nil:
		return f.Path + " removed"
	}
	return f.Path + " " + value(f.Before) + " → " + value(f.After)
}

func (a *app) rollbackCommand() *cobra.Command {
	var to uint64
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "rollback TYPE NAME --to REVISION",
		Short: "Restore a revision of a resource",
		Long: `Writes the content of an earlier revision as a new one. A resource that was deleted is there again. --dry-run shows
what that would change on the proxies.`,
		Example:           "  nearside rollback meshtimeout slow --to 41 --dry-run\n  nearside rollback mt/slow --to 41",
		Args:              args(1, 2, "TYPE NAME or TYPE/NAME"),
		ValidArgsFunction: a.completeTypeAndName,
	}
	a.meshFlag(cmd)
	cmd.Flags().Uint64Var(&to, "to", 0, "revision, as history lists it (required)")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "say what would change and change nothing")
	var format string
	outputFlag(cmd, &format, "text", "json", "yaml", "name")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if to == 0 {
			return usagef("--to REVISION is missing; nearside history %s lists the revisions", strings.Join(args, " "))
		}
		r, err := a.reference(cmd.Context(), args)
		if err != nil {
			return err
		}
		w, err := a.client().Rollback(cmd.Context(), client.Rollback{Type: r.kind.Kind, Mesh: r.mesh, Name: r.name, Revision: to, DryRun: dryRun})
		if err != nil {
			return err
		}
		return a.printWritten(w, format, proxiesText)
	}
	return cmd
}
