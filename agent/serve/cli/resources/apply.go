package resources

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/answer/offline"
	"github.com/nearside-mesh/nearside/agent/base/plural"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/secret"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
	"github.com/nearside-mesh/nearside/agent/serve/client"
	"github.com/nearside-mesh/nearside/gossip/engine"
)

func applyCommand(env *command.Env) *cobra.Command {
	var f command.FileFlags
	var dryRun bool
	cmd := &cobra.Command{
		Use:        "apply -f FILE|DIR|-",
		SuggestFor: []string{"create", "put", "replace", "patch", "set"},
		Short:      "Create or change resources",
		Long: `Creates or changes resources. The command validates all documents first, and writes all of them in
one step, so a failure changes nothing. The agent refuses changes to resources from its resource
directory or from an Envoy; change those at their source.

--dry-run checks the change against the stored resources, and shows what would change on each proxy.
"nearside diff" shows more.

--sign signs each resource with a key, so that all nodes of the pool can verify who wrote it. The
key never leaves this machine, and a dry run does not use it.`,
		Example: `  nearside apply -f timeout.yaml
  nearside apply -R -f policies --dry-run
  nearside get mt -o yaml | sed 's/10s/15s/' | nearside apply -f -`,
		Args: command.Args(0, 0, "no arguments; select files with -f"),
	}
	var key command.KeyFlag
	f.Add(cmd, "resources to apply")
	key.Add(cmd)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "show what would change, and change nothing")
	format := command.OutputFlag(cmd, "text", "json", "yaml", "name")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		o, err := command.ForAgent(env, &f)
		if err != nil {
			return err
		}
		if o.Len() == 0 {
			return command.ErrNothing
		}
		signs, err := key.Signs(env, o.Keys())
		if err != nil {
			return err
		}
		if signs && !dryRun {
			return printWritten(env, *format, text.DiffSummary)(applySigned(cmd.Context(), env, &key, nil, o))
		}
		stream, err := command.StreamOf(o)
		if err != nil {
			return err
		}
		var omit []string
		if dryRun && (*format == "text" || *format == "name") {
			// the summary does not show them, and they are expensive to compute
			omit = []string{"items", "patch"}
		}
		return printWritten(env, *format, text.DiffSummary)(command.Long(env, func(c *client.Client) (*api.Written, error) {
			return c.Apply(cmd.Context(), stream, dryRun, omit...)
		}))
	}
	return cmd
}

// applySigned stores resources that the key signs; see [command.KeyFlag.Sign].
func applySigned(ctx context.Context, env *command.Env, key *command.KeyFlag, check func() error,
	o *offline.Offline) (*api.Written, error) {
	var puts []engine.Put
	for _, r := range o.Resources() {
		p, err := command.PutOf(r)
		if err != nil {
			return nil, err
		}
		if bytes.Contains(p.Body, []byte(strings.TrimSuffix(secret.Redacted, "]"))) {
			return nil, command.Exit(command.ExitInvalid, fmt.Errorf("%s contains the mark of a redacted secret, which "+
				"cannot be signed; give the secret itself", r.Key))
		}
		puts = append(puts, p)
	}
	return key.Sign(ctx, env, check, puts)
}

func deleteCommand(env *command.Env) *cobra.Command {
	var dryRun, ignore bool
	var f command.FileFlags
	cmd := &cobra.Command{
		Use:        "delete TYPE NAME | -f FILE|DIR|-",
		SuggestFor: []string{"remove", "rm", "del"},
		Short:      "Delete resources",
		Long: `Deletes a resource that was created over the API. With -f, it deletes all resources in the files, in
reverse order and meshes last, with one request each. If one of them cannot be deleted, the earlier
ones stay deleted. "nearside rollback" restores deleted resources. --sign signs each deletion.
With --ignore-not-found, a resource that does not exist counts as deleted.`,
		Example: "  nearside delete meshtimeout slow\n  nearside delete mt/slow -m shop --dry-run\n" +
			"  nearside delete -f policies --ignore-not-found",
		Args: command.Args(0, 2, "TYPE NAME or TYPE/NAME, or files with -f"),
	}
	command.ResourceFlags(env, cmd)
	var key command.KeyFlag
	f.Add(cmd, "resources to delete")
	key.Add(cmd)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "show what would be deleted, and delete nothing")
	cmd.Flags().BoolVar(&ignore, "ignore-not-found", false, "succeed if a resource does not exist")
	format := command.OutputFlag(cmd, "text", "json", "yaml", "name")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(f.Paths) > 0 {
			if len(args) > 0 {
				return command.Usagef("-f and %q both select resources; omit one of them", strings.Join(args, " "))
			}
			return deleteFiles(cmd.Context(), env, &f, *format, deleter{env, &key, dryRun, ignore})
		}
		if err := f.Online(); err != nil {
			return err
		}
		if len(args) == 0 {
			return command.Usagef("give the resource to delete: TYPE NAME or TYPE/NAME, or files with -f")
		}
		r, err := command.Resolve(cmd.Context(), env, args)
		if err != nil {
			return err
		}
		return printWritten(env, *format, text.DiffSummary)(deleter{env, &key, dryRun, ignore}.delete(cmd.Context(), r.Kind,
			resource.Key{Kind: r.Kind.Kind, Mesh: r.Mesh, Name: r.Name}))
	}
	return cmd
}

// deleter deletes single resources.
type deleter struct {
	env    *command.Env
	key    *command.KeyFlag
	dryRun bool
	ignore bool // a resource that does not exist is no error
}

func (d deleter) delete(ctx context.Context, kind api.Kind, k resource.Key) (*api.Written, error) {
	w, err := d.remove(ctx, kind, k)
	var p *api.Error
	if d.ignore && errors.As(err, &p) && p.Type == api.ProblemNotFound {
		return &api.Written{Warnings: []string{}, Changes: []api.Change{}, DryRun: d.dryRun}, nil
	}
	return w, err
}

func (d deleter) remove(ctx context.Context, kind api.Kind, k resource.Key) (*api.Written, error) {
	signs, err := d.key.Signs(d.env, []resource.Key{k})
	switch {
	case err != nil:
		return nil, err
	case signs && !d.dryRun:
		return d.key.Sign(ctx, d.env, nil, []engine.Put{{Key: engine.Key(k), Delete: true}})
	}
	return command.Long(d.env, func(c *client.Client) (*api.Written, error) {
		return c.Delete(ctx, kind.Plural, k.Mesh, k.Name, d.dryRun)
	})
}

// rankOf sorts resources of meshes before global ones.
func rankOf(k resource.Key) int {
	if k.Mesh == "" {
		return 1
	}
	return 0
}

// deleteFiles deletes the resources in files, one request each. It stops at the first error and
// does not restore resources that are already deleted.
func deleteFiles(ctx context.Context, env *command.Env, f *command.FileFlags, format string, d deleter) error {
	o, err := command.ForAgent(env, f)
	if err != nil {
		return err
	}
	if o.Len() == 0 {
		return command.ErrNothing
	}
	kinds, err := env.Client().Kinds(ctx)
	if err != nil {
		return err
	}
	keys := o.Keys()
	slices.Reverse(keys)
	slices.SortStableFunc(keys, func(x, y resource.Key) int { return cmp.Compare(rankOf(x), rankOf(y)) })
	all := &api.Written{Warnings: []string{}, DryRun: d.dryRun}
	for i, k := range keys {
		kind, err := command.FindKind(kinds, k.Kind)
		var one *api.Written
		if err == nil {
			one, err = d.delete(ctx, kind, k)
		}
		var p *api.Error
		if d.dryRun && errors.As(err, &p) && p.Type == api.ProblemInUse {
			all.Warnings = append(all.Warnings, fmt.Sprintf("%s is deleted if it is empty by then: %s", k, p.Detail))
			continue
		}
		if err != nil {
			return errors.Join(printWritten(env, format, text.DiffSummary)(all, nil),
				fmt.Errorf("%d of %s deleted: %w", i, plural.Count(len(keys), "resource"), err))
		}
		all.Changes, all.Warnings = append(all.Changes, one.Changes...), append(all.Warnings, one.Warnings...)
	}
	return printWritten(env, format, text.DiffSummary)(all, nil)
}

// printWritten prints the result of a write. For a dry run, preview prints the changes on proxies.
func printWritten(env *command.Env, format string,
	preview func(io.Writer, *api.Diff)) func(*api.Written, error) error {
	return func(w *api.Written, err error) error {
		if err == nil {
			env.Warn(w.Warnings)
		}
		return command.Show(env, format, func(out io.Writer, w *api.Written) {
			text.WriteResult(out, w, format == "text")
			if w.Diff != nil && format == "text" {
				text.DiffWarnings(env.Stderr, w.Diff)
				text.Println(out)
				preview(out, w.Diff)
			}
		})(w, err)
	}
}
