package resources

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/answer/offline"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
	"github.com/nearside-mesh/nearside/agent/serve/client"
)

// Exit codes of diff, as in diff(1). Errors with a specific exit code keep it.
const (
	exitDiffers = 1
	exitFailed  = 2
)

// Comparison holds the flags of diff.
type Comparison struct {
	files, Against command.FileFlags
	served         command.FileFlags
	deletes        []string
	Shadow, all    bool
	Mesh           string   // empty: all
	Dataplane      string   // empty: all
	Omit           []string // parts to omit from the answer
}

func diffCommand(env *command.Env) *cobra.Command {
	var d Comparison
	cmd := &cobra.Command{
		Use:   "diff -f FILE|DIR|-…",
		Short: "Show what files would change on the proxies",
		Long: `Shows what would change on the proxies if you applied these files: the resources, the merged rules,
and the Envoy config, each with the resource that causes the change. Nothing is stored. --delete
also deletes resources. --shadow includes the stored shadow policies, as if their label were
removed; it can be combined with -f.

An agent compares the proxies that are connected to it, or every dataplane if none is connected.
With --against, the current resources come from files, no agent is needed, and all their dataplanes
are compared; NEARSIDE_NODE_ZONE sets the zone. -m and --dataplane select fewer proxies.

With --served, the command compares the meaning of the configs with what another server gave to the
proxies: a Kuma control plane, or an earlier version of nearside. Each file is the output of "kumactl
inspect dataplane NAME --type=config", or of the same command of nearside with -o json. Its name is
NAME.json, or --dataplane gives the name. -m is its mesh. With -f, no agent is needed. Equal
differences form one group. Names of routes and statistics, virtual addresses, and secrets are not
compared.

-o text is for people, summary prints one line for each proxy, jsonpatch prints the patches (RFC
6902) of the configs by MESH/NAME, and json and yaml print the document of the API. Broken
references and policy conflicts that the change introduces are warnings on standard error.

Exit codes: 0 no config changes, 1 some config changes, 2 failure, 64 usage error, 65 invalid input
document, 69 agent unreachable, 77 permission denied.`,
		Example: `  nearside diff -f timeout.yaml
  nearside diff -f timeout.yaml --dataplane web -o jsonpatch
  nearside diff --shadow -o summary
  nearside diff --delete meshtimeout/slow
  nearside diff -R -f changed/ --against resources/
  nearside diff -f resources/ -m shop --served served/`,
		Args: command.Args(0, 0, "no arguments; select files with -f"),
	}
	fl := cmd.Flags()
	fl.StringVarP(&d.Mesh, "mesh", "m", "",
		"compare only proxies of this mesh (default: all); also the mesh of names in --delete")
	_ = cmd.RegisterFlagCompletionFunc("mesh", command.CompleteMesh(env))
	d.files.Add(cmd, "resources to apply")
	d.Against.Flag = "--against"
	fl.StringArrayVar(&d.Against.Paths, "against", nil,
		"compute offline against these current resources: a file, a folder, or -; repeatable")
	d.served.Flag = "--served"
	fl.StringArrayVar(&d.served.Paths, "served", nil,
		"compare with these configs from another server: a file, a folder, or -; repeatable")
	fl.StringArrayVar(&d.deletes, "delete", nil, "TYPE/NAME to delete; repeatable")
	fl.BoolVar(&d.Shadow, "shadow", false, "include shadow policies")
	fl.StringVar(&d.Dataplane, "dataplane", "", "compare only this dataplane, connected or not")
	command.CompleteDataplanes(env, cmd, "dataplane", &d.Mesh)
	fl.BoolVar(&d.all, "all-nodes", false,
		"compare all dataplanes that the agent knows, also those of other nodes (default: connected ones)")
	format := command.OutputFlag(cmd, "text", "summary", "jsonpatch", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := d.names(cmd.Context(), env); err != nil {
			return err
		}
		if len(d.served.Paths) > 0 {
			return failedServed(compareServed(cmd.Context(), env, &d, *format))
		}
		d.Omit = map[string][]string{"text": {"patch"}, "summary": {"patch", "items"}, "jsonpatch": {"items"}}[*format]
		doc, err := Compare(cmd.Context(), env, &d)
		if err == nil {
			err = printDiff(env, doc, *format)
		}
		switch {
		case err != nil:
			return failedDiff(err)
		case doc.Changed:
			return command.Silent(exitDiffers)
		}
		return nil
	}
	return cmd
}

// names selects the mesh and the dataplane of the flags. A name with a mesh selects the mesh.
func (d *Comparison) names(ctx context.Context, env *command.Env) error {
	d.Against.Recursive = d.files.Recursive
	d.Against.WithVars(&d.files)
	env.Mesh = d.Mesh
	if d.Dataplane == "" {
		return nil
	}
	current := &d.Against
	if len(d.served.Paths) > 0 {
		current = &d.files
	}
	var err error
	d.Dataplane, err = command.DataplaneFilter(ctx, env, current, d.Dataplane)
	d.Mesh = env.Mesh
	return err
}

// failedServed is [failedDiff] for a command that ends with the result of the comparison.
func failedServed(err error) error {
	if silent := (*command.ExitError)(nil); errors.As(err, &silent) && silent.Err == nil {
		return err
	}
	return failedDiff(err)
}

// failedDiff changes exit code 1 to 2, because 1 means that configs differ.
func failedDiff(err error) error {
	if command.ExitCode(err) == command.ExitFailed {
		return command.Exit(exitFailed, err)
	}
	return err
}

// Compare compares against the agent, or offline against the files of --against.
func Compare(ctx context.Context, env *command.Env, d *Comparison) (*api.Diff, error) {
	switch {
	case d.all && len(d.Against.Paths) > 0:
		return nil, command.Usagef("--all-nodes requires an agent, and --against compares all dataplanes of the files; " +
			"omit one of them")
	case len(d.files.Paths) == 0 && len(d.deletes) == 0 && !d.Shadow:
		return nil, command.Usagef("-f is missing: give files, or --shadow or --delete to compare stored resources")
	case slices.Contains(d.files.Paths, "-") && slices.Contains(d.Against.Paths, "-"):
		return nil, command.Usagef("-f - and --against - cannot both read standard input")
	}
	if len(d.Against.Paths) > 0 { // before -f, which reports variables that no file has
		if _, err := command.Offline(env, &d.Against); err != nil {
			return nil, err
		}
	}
	if err := d.files.Online(); err != nil {
		return nil, err
	}
	var put *offline.Offline
	if len(d.files.Paths) > 0 {
		read, err := command.ForAgent, error(nil)
		if len(d.Against.Paths) > 0 {
			read = command.Offline
		}
		if put, err = read(env, &d.files); err != nil {
			return nil, err
		}
		if put.Len() == 0 {
			return nil, command.ErrNothing
		}
	}
	if len(d.Against.Paths) > 0 {
		now, err := command.Offline(env, &d.Against)
		if err != nil {
			return nil, err
		}
		keys, err := keys(ctx, env, &d.Against, d.deletes, func() ([]api.Kind, error) { return offline.Kinds(), nil })
		if err != nil {
			return nil, err
		}
		with := offline.DiffOptions{Put: put, Delete: keys, Shadow: d.Shadow, Mesh: d.Mesh, Dataplane: d.Dataplane,
			NoPatches: slices.Contains(d.Omit, "patch")}
		var done func()
		with.Progress, done = command.Progress(env, "comparing the configs of proxies")
		defer done()
		return now.Diff(ctx, env.Getenv("NEARSIDE_NODE_ZONE"), with)
	}
	q := client.DiffQuestion{Shadow: d.Shadow, Mesh: d.Mesh, Dataplane: d.Dataplane, AllNodes: d.all, Omit: d.Omit}
	keys, err := keys(ctx, env, nil, d.deletes, func() ([]api.Kind, error) { return env.Client().Kinds(ctx) })
	if err != nil {
		return nil, err
	}
	for _, k := range keys {
		q.Delete = append(q.Delete, k.String())
	}
	if put != nil {
		if q.Stream, err = command.StreamOf(put); err != nil {
			return nil, err
		}
	}
	doc, err := command.Long(env, func(c *client.Client) (*api.Diff, error) { return c.Diff(ctx, q) })
	if err == nil && doc.Scope == "all" && !d.all {
		text.Println(env.Stderr, "note: no proxy is connected to the agent, so every dataplane was compared")
	}
	return doc, err
}

// keys parses the values of --delete.
func keys(ctx context.Context, env *command.Env, f *command.FileFlags, list []string,
	kinds func() ([]api.Kind, error)) ([]resource.Key, error) {
	var out []resource.Key
	for _, s := range list {
		each := *env // the names may be in several meshes
		r, err := command.ResolveAmong(ctx, &each, f, []string{s}, kinds)
		if err != nil {
			return nil, fmt.Errorf("--delete %s: %w", s, err)
		}
		env.Named = each.Named
		out = append(out, resource.Key{Kind: r.Kind.Kind, Mesh: r.Mesh, Name: r.Name})
	}
	return out, nil
}

// printDiff writes a comparison in a format.
func printDiff(env *command.Env, d *api.Diff, format string) error {
	if ok, err := command.Printed(env, format, d); ok {
		return err
	}
	text.DiffWarnings(env.Stderr, d)
	switch format {
	case "jsonpatch":
		patches := map[string]any{}
		for _, p := range d.Proxies {
			if p.Truncated {
				return fmt.Errorf("the patches are too large; select one proxy with --dataplane")
			}
			if len(p.Config.Patch) > 0 {
				patches[p.Mesh+"/"+p.Name] = p.Config.Patch
			}
		}
		return text.JSON(env.Stdout, patches)
	case "summary":
		text.DiffSummary(env.Stdout, d)
	default:
		text.Diff(env.Stdout, d)
	}
	return nil
}
