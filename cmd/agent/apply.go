package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/serve/client"
)

func (a *app) applyCommand() *cobra.Command {
	var f fileFlags
	var dryRun bool
	cmd := &cobra.Command{
		Use:        "apply -f FILE|DIR|-",
		SuggestFor: []string{"create", "put", "replace", "patch", "set"},
		Short:      "Create or change resources",
		Long: `Creates or changes resources. All documents are validated before the first is written, and all are written in one
step: after a failure nothing has changed. What comes from the agent's resource directory, or from an Envoy, belongs
there and is refused here.

--dry-run checks everything against what is stored and says what would change on each proxy; nearside diff says more.`,
		Example: `  nearside apply -f timeout.yaml
  nearside apply -R -f policies --dry-run
  nearside get mt -o yaml | sed 's/10s/15s/' | nearside apply -f -`,
		Args: args(0, 0, "no arguments; name files with -f"),
	}
	f.add(cmd, "resources to apply")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "say what would change and change nothing")
	format := outputFlag(cmd, "text", "json", "yaml", "name")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		o, err := a.forAgent(&f)
		if err != nil {
			return err
		}
		if o.Len() == 0 {
			return errNothing
		}
		stream, err := streamOf(o)
		if err != nil {
			return err
		}
		var omit []string
		if dryRun && (*format == "text" || *format == "name") {
			omit = []string{"items", "patch"} // a summary has none of them, and they are most of the work
		}
		c, done := a.longClient()
		w, err := c.Apply(cmd.Context(), stream, dryRun, omit...)
		done()
		return a.written(*format, diffSummary)(w, err)
	}
	return cmd
}

func (a *app) deleteCommand() *cobra.Command {
	var dryRun bool
	var f fileFlags
	cmd := &cobra.Command{
		Use:        "delete TYPE NAME | -f FILE|DIR|-",
		SuggestFor: []string{"remove", "rm", "del"},
		Short:      "Delete resources",
		Long: `Deletes a resource that came over the API, or with -f all that files name, the last one first and meshes behind all others, one
request each: what is deleted stays so when another one cannot be. Their history stays, so that rollback brings them back.`,
		Example: "  nearside delete meshtimeout slow\n  nearside delete mt/slow -m shop --dry-run\n" +
			"  nearside delete -f policies",
		Args:              args(0, 2, "TYPE NAME or TYPE/NAME, or files with -f"),
		ValidArgsFunction: a.completeTypeAndName,
	}
	a.meshFlag(cmd)
	f.add(cmd, "resources to delete")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "say what would be deleted and delete nothing")
	format := outputFlag(cmd, "text", "json", "yaml", "name")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(f.paths) > 0 {
			if len(args) > 0 {
				return usagef("-f names what to delete, and so does %q: leave one of the two out", strings.Join(args, " "))
			}
			return a.deleteFiles(cmd.Context(), &f, *format, dryRun)
		}
		if len(args) == 0 {
			return usagef("name what to delete: TYPE NAME or TYPE/NAME, or files with -f")
		}
		r, err := a.reference(cmd.Context(), args)
		if err != nil {
			return err
		}
		c, done := a.longClient()
		w, err := c.Delete(cmd.Context(), r.kind.Plural, r.mesh, r.name, dryRun)
		done()
		return a.written(*format, diffSummary)(w, err)
	}
	return cmd
}

// rankOf puts what belongs to a mesh before what belongs to none.
func rankOf(k client.Key) int {
	if k.Mesh == "" {
		return 1
	}
	return 0
}

// deleteFiles deletes what files name. What is deleted stays so when another one cannot be.
func (a *app) deleteFiles(ctx context.Context, f *fileFlags, format string, dryRun bool) error {
	o, err := a.forAgent(f)
	if err != nil {
		return err
	}
	if o.Len() == 0 {
		return errNothing
	}
	kinds, err := a.client().Kinds(ctx)
	if err != nil {
		return err
	}
	keys := o.Keys()
	slices.Reverse(keys)
	slices.SortStableFunc(keys, func(x, y client.Key) int { return cmp.Compare(rankOf(x), rankOf(y)) })
	all := &client.Written{Warnings: []string{}, DryRun: dryRun}
	for i, k := range keys {
		kind, err := findKind(kinds, k.Kind)
		var one *client.Written
		if err == nil {
			one, err = a.client().Delete(ctx, kind.Plural, k.Mesh, k.Name, dryRun)
		}
		var p *client.Problem
		if dryRun && errors.As(err, &p) && p.Type == client.ProblemInUse {
			all.Warnings = append(all.Warnings, fmt.Sprintf("%s is deleted if nothing is left in it by then: %s", k, p.Detail))
			continue
		}
		if err != nil {
			return errors.Join(a.written(format, diffSummary)(all, nil),
				fmt.Errorf("%d of %d are deleted: %w", i, len(keys), err))
		}
		all.Changes, all.Warnings = append(all.Changes, one.Changes...), append(all.Warnings, one.Warnings...)
	}
	return a.written(format, diffSummary)(all, nil)
}

// written shows what a write did; of a dry run, preview shows what it would change on proxies.
func (a *app) written(format string, preview func(io.Writer, *client.Diff) error) func(*client.Written, error) error {
	return func(w *client.Written, err error) error {
		if err == nil {
			a.warn(w.Warnings)
		}
		return show(a, format, func(w *client.Written) error {
			for _, c := range w.Changes {
				printf(a.stdout, "%s", typeAndName(c.Type, c.Name))
				if format == "text" {
					a.changeText(w, &c)
				}
				printLine(a.stdout)
			}
			if w.Diff == nil || format != "text" {
				return nil
			}
			a.diffWarnings(w.Diff)
			printLine(a.stdout)
			return preview(a.stdout, w.Diff)
		}, nil)(w, err)
	}
}

// changeText writes behind the name of a resource what was done to it.
func (a *app) changeText(w *client.Written, c *client.Change) {
	printf(a.stdout, "%s %s", inMesh(c.Mesh), c.Action)
	if w.DryRun {
		printf(a.stdout, " (dry run)")
	} else if c.Revision > 0 {
		printf(a.stdout, ", revision %d", c.Revision)
	}
	for _, f := range c.Fields {
		printf(a.stdout, "\n  %s", fieldChange(f))
	}
}

// inMesh says which mesh a resource belongs to; "" for a global one.
func inMesh(mesh string) string {
	if mesh == "" {
		return ""
	}
	return " in mesh " + mesh
}

func (a *app) historyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:        "history TYPE NAME",
		SuggestFor: []string{"revisions", "rollout"},
		Short:      "List the revisions of a resource",
		Long: `Lists the latest revisions of a resource, oldest first, deletions included; also of one that is deleted. Each says
what was changed, from which source (file, API, Envoy), by whom and when; -o yaml has the exact times and the content.`,
		Example:           "  nearside history meshtimeout slow\n  nearside history dataplane web -m shop -o yaml",
		Args:              args(1, 2, "TYPE NAME or TYPE/NAME"),
		ValidArgsFunction: a.completeTypeAndName,
	}
	a.meshFlag(cmd)
	format := outputFlag(cmd, "table", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r, err := a.reference(cmd.Context(), args)
		if err != nil {
			return err
		}
		return show(a, *format, func(h *client.History) error {
			t := newTable(a.stdout, "REVISION", "CHANGE", "SOURCE", "AUTHOR", "AGE", "FIELDS")
			for _, rev := range h.Items {
				t.row(fmt.Sprint(rev.Revision), rev.Action, rev.Source, rev.Author, age(rev.Time), fields(rev.Fields))
			}
			return t.Flush()
		}, nil)(a.client().History(cmd.Context(), r.kind.Plural, r.mesh, r.name))
	}
	return cmd
}

// mostFields is how many fields a table names of one change.
const mostFields = 3

// fields tells in one cell what a change was about.
func fields(list []client.FieldChange) string {
	s := each(list[:min(len(list), mostFields)], fieldChange)
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
		Use:        "rollback TYPE NAME --to REVISION",
		SuggestFor: []string{"undo", "revert", "restore"},
		Short:      "Restore a revision of a resource",
		Long: `Writes the content of an earlier revision as a new one. A resource that was deleted is there again. --dry-run shows
what that would change on the proxies.`,
		Example:           "  nearside rollback meshtimeout slow --to 41 --dry-run\n  nearside rollback mt/slow --to 41",
		Args:              args(1, 2, "TYPE NAME or TYPE/NAME"),
		ValidArgsFunction: a.completeTypeAndName,
	}
	a.meshFlag(cmd)
	cmd.Flags().Uint64Var(&to, "to", 0, "revision, as history lists it (required)")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "say what would change and change nothing")
	format := outputFlag(cmd, "text", "json", "yaml", "name")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if to == 0 {
			return usagef("--to REVISION is missing; nearside history %s lists the revisions", strings.Join(args, " "))
		}
		r, err := a.reference(cmd.Context(), args)
		if err != nil {
			return err
		}
		q := client.Rollback{Type: r.kind.Kind, Mesh: r.mesh, Name: r.name, Revision: to, DryRun: dryRun}
		c, done := a.longClient()
		w, err := c.Rollback(cmd.Context(), q)
		done()
		return a.written(*format, proxiesText)(w, err)
	}
	return cmd
}
