package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/client"
)

func (a *app) applyCommand() *cobra.Command {
	var f fileFlags
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "apply -f FILE|DIR|-",
		Short: "Create or change resources",
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
	var format string
	outputFlag(cmd, &format, "text", "json", "yaml", "name")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		o, err := a.offline(&f)
		if err != nil {
			return err
		}
		if o.Len() == 0 {
			return errors.New("the files hold no resource")
		}
		stream, err := o.Stream()
		if err != nil {
			return err
		}
		w, err := a.client().Apply(cmd.Context(), stream, dryRun)
		if err != nil {
			return err
		}
		return a.printWritten(w, format, diffSummary)
	}
	return cmd
}

func (a *app) deleteCommand() *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use:               "delete TYPE NAME",
		Short:             "Delete a resource",
		Long:              "Deletes a resource that came over the API. Its history stays, so that rollback brings it back.",
		Example:           "  nearside delete meshtimeout slow\n  nearside delete mt/slow -m shop --dry-run",
		Args:              args(1, 2, "TYPE NAME or TYPE/NAME"),
		ValidArgsFunction: a.completeTypeAndName,
	}
	a.meshFlag(cmd)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "say what would be deleted and delete nothing")
	var format string
	outputFlag(cmd, &format, "text", "json", "yaml", "name")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r, err := a.reference(cmd.Context(), args)
		if err != nil {
			return err
		}
		w, err := a.client().Delete(cmd.Context(), r.kind.Plural, r.mesh, r.name, dryRun)
		if err != nil {
			return err
		}
		return a.printWritten(w, format, diffSummary)
	}
	return cmd
}

// printWritten shows what a write did; of a dry run, preview shows what it would change on proxies.
func (a *app) printWritten(w *client.Written, format string, preview func(io.Writer, *client.Diff) error) error {
	for _, warning := range w.Warnings {
		fmt.Fprintln(a.stderr, "warning: "+warning)
	}
	if ok, err := a.printed(format, w); ok {
		return err
	}
	for _, c := range w.Changes {
		line := strings.ToLower(c.Type) + "/" + c.Name
		if format == "text" {
			if c.Mesh != "" {
				line += " in mesh " + c.Mesh
			}
			line += " " + c.Action
			if w.DryRun {
				line += " (dry run)"
			} else if c.Revision > 0 {
				line += fmt.Sprintf(", revision %d", c.Revision)
			}
		}
		fmt.Fprintln(a.stdout, line)
		for _, f := range c.Fields {
			if format == "text" {
				fmt.Fprintln(a.stdout, "  "+fieldChange(f))
			}
		}
	}
	if w.Diff == nil || format != "text" {
		return nil
	}
	a.diffWarnings(w.Diff)
	fmt.Fprintln(a.stdout)
	return preview(a.stdout, w.Diff)
}

// reference is a resource, or with an empty name a collection, that a command line names.
type reference struct {
	kind client.Kind
	mesh string // "" for global kinds
	name string
}

// reference reads TYPE NAME or TYPE/NAME; the agent says what kinds there are.
func (a *app) reference(ctx context.Context, args []string) (reference, error) {
	return a.referenceAmong(args, func() ([]client.Kind, error) { return a.client().Kinds(ctx) })
}

// referenceAmong reads TYPE NAME or TYPE/NAME of the kinds given.
func (a *app) referenceAmong(args []string, kinds func() ([]client.Kind, error)) (reference, error) {
	typ, name, _ := strings.Cut(args[0], "/")
	switch {
	case len(args) == 2 && name != "":
		return reference{}, usagef("the name is given twice, in %q and as %q", args[0], args[1])
	case len(args) == 2:
		name = args[1]
	}
	if name == "" {
		return reference{}, usagef("the NAME of the %s is missing", typ)
	}
	list, err := kinds()
	if err != nil {
		return reference{}, err
	}
	kind, err := findKind(list, typ)
	if err != nil {
		return reference{}, err
	}
	r := reference{kind: kind, mesh: a.mesh, name: name}
	if kind.Global {
		r.mesh = ""
	}
	return r, nil
}

// kind finds a kind by any of its names, in any case.
func (a *app) kind(ctx context.Context, name string) (client.Kind, error) {
	kinds, err := a.client().Kinds(ctx)
	if err != nil {
		return client.Kind{}, err
	}
	return findKind(kinds, name)
}

func findKind(kinds []client.Kind, name string) (client.Kind, error) {
	var plurals []string
	for _, k := range kinds {
		if n := strings.ToLower(name); n != "" && (n == strings.ToLower(k.Kind) || n == strings.ToLower(k.Plural) || n == strings.ToLower(k.Short)) {
			return k, nil
		}
		plurals = append(plurals, k.Plural)
	}
	return client.Kind{}, usagef("there is no TYPE %q; known are %s", name, strings.Join(plurals, ", "))
}
