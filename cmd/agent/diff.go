package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/answer/offline"
	"github.com/nearside-mesh/nearside/agent/serve/client"
)

// Exit codes of diff, as of diff(1). What has a code of its own keeps it.
const (
	exitDiffers = 1
	exitTrouble = 2
)

// difference is the flags of diff.
type difference struct {
	files, against fileFlags
	deletes        []string
	shadow, all    bool
	mesh           string   // "": all
	dataplane      string   // "": all
	omit           []string // of the answer
}

func (a *app) diffCommand() *cobra.Command {
	var d difference
	cmd := &cobra.Command{
		Use:   "diff -f FILE|DIR|-…",
		Short: "Show what files would change on the proxies, and store nothing",
		Long: `Shows what would change on the proxies if these files were applied: resources, what the policies say together, and
Envoy's config, each with the resource that causes it. Nothing is stored. With --delete, resources would be deleted too.
--shadow includes the stored shadow policies, as if their label were removed, with -f together with the files.

An agent compares the proxies that are connected to it, or every dataplane where none is. With --against the present
resources come from files, no agent is asked, and all their dataplanes are compared; the zone is then NEARSIDE_NODE_ZONE.
-m and --dataplane look at fewer.

-o text is for people, summary one line for each proxy, jsonpatch the patches (RFC 6902) of the configs by MESH/NAME,
json and yaml the document of the API. Broken references and conflicts between policies that the change introduces
are warnings on standard error.

Exit codes: 0 the config of no proxy changes, 1 that of some proxy changes, 2 failed, 64 usage, 65 invalid input
document, 69 the agent is not reachable, 77 no permission.`,
		Example: `  nearside diff -f timeout.yaml
  nearside diff -f timeout.yaml --dataplane web -o jsonpatch
  nearside diff --shadow -o summary
  nearside diff --delete meshtimeout/slow
  nearside diff -R -f changed/ --against resources/`,
		Args: args(0, 0, "no arguments; name files with -f"),
	}
	fl := cmd.Flags()
	fl.StringVarP(&d.mesh, "mesh", "m", "",
		"only proxies of this mesh (default: all); also the mesh of --delete (default: default)")
	_ = cmd.RegisterFlagCompletionFunc("mesh", a.completeMesh)
	d.files.add(cmd, "resources that would be applied")
	d.against.flag = "--against"
	fl.StringArrayVar(&d.against.paths, "against", nil,
		"compute offline against these present resources: a file, a folder or -; repeatable")
	fl.StringArrayVar(&d.deletes, "delete", nil, "TYPE/NAME that would be deleted; repeatable")
	fl.BoolVar(&d.shadow, "shadow", false, "include shadow policies")
	fl.StringVar(&d.dataplane, "dataplane", "", "only this dataplane, connected or not")
	_ = cmd.RegisterFlagCompletionFunc("dataplane", func(cmd *cobra.Command, _ []string,
		prefix string) ([]string, cobra.ShellCompDirective) {
		return a.names(cmd, "dataplanes", d.mesh, prefix), cobra.ShellCompDirectiveNoFileComp
	})
	fl.BoolVar(&d.all, "all-nodes", false,
		"every dataplane that the agent knows, of its own node or not (default: those that are connected to it)")
	format := outputFlag(cmd, "text", "summary", "jsonpatch", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		a.mesh = cmp.Or(d.mesh, "default")
		d.omit = map[string][]string{"text": {"patch"}, "summary": {"patch", "items"}, "jsonpatch": {"items"}}[*format]
		doc, err := a.diff(cmd.Context(), &d)
		if err == nil {
			err = a.printDiff(doc, *format)
		}
		switch {
		case err != nil:
			return inTrouble(err)
		case doc.Changed:
			return silent(exitDiffers)
		}
		return nil
	}
	return cmd
}

// inTrouble keeps the code for changes free of errors.
func inTrouble(err error) error {
	if exitCode(err) == exitFailed {
		return &exitError{err: err, code: exitTrouble}
	}
	return err
}

// diff asks an agent, or computes.
func (a *app) diff(ctx context.Context, d *difference) (*client.Diff, error) {
	switch {
	case d.all && len(d.against.paths) > 0:
		return nil, usagef("--all-nodes is about an agent, and --against compares every dataplane of the files anyway; " +
			"leave one of them out")
	case len(d.files.paths) == 0 && len(d.deletes) == 0 && !d.shadow:
		return nil, usagef("-f is missing: give files, or --shadow or --delete for what is stored")
	case slices.Contains(d.files.paths, "-") && slices.Contains(d.against.paths, "-"):
		return nil, usagef("-f - and --against - cannot both read standard input")
	}
	d.against.recursive = d.files.recursive
	var put *offline.Offline
	if len(d.files.paths) > 0 {
		read, err := a.forAgent, error(nil)
		if len(d.against.paths) > 0 {
			read = a.offline
		}
		if put, err = read(&d.files); err != nil {
			return nil, err
		}
		if put.Len() == 0 {
			return nil, errNothing
		}
	}
	if len(d.against.paths) > 0 {
		now, err := a.offline(&d.against)
		if err != nil {
			return nil, err
		}
		keys, err := a.keys(d.deletes, func() ([]client.Kind, error) { return offline.Kinds(), nil })
		if err != nil {
			return nil, err
		}
		with := offline.DiffOptions{Put: put, Delete: keys, Shadow: d.shadow, Mesh: d.mesh, Dataplane: d.dataplane,
			NoPatches: slices.Contains(d.omit, "patch")}
		var done func()
		with.Progress, done = a.progress("comparing the configs of proxies")
		defer done()
		return now.Diff(ctx, a.getenv("NEARSIDE_NODE_ZONE"), with)
	}
	q := client.DiffQuestion{Shadow: d.shadow, Mesh: d.mesh, Dataplane: d.dataplane, AllNodes: d.all, Omit: d.omit}
	keys, err := a.keys(d.deletes, func() ([]client.Kind, error) { return a.client().Kinds(ctx) })
	if err != nil {
		return nil, err
	}
	for _, k := range keys {
		q.Delete = append(q.Delete, k.String())
	}
	if put != nil {
		if q.Stream, err = streamOf(put); err != nil {
			return nil, err
		}
	}
	c, done := a.longClient()
	doc, err := c.Diff(ctx, q)
	done()
	if err == nil && doc.Scope == "all" && !d.all {
		printLine(a.stderr, "note: no proxy is connected to the agent, so every dataplane was compared")
	}
	return doc, err
}

// keys reads TYPE/NAME of what would be deleted.
func (a *app) keys(list []string, kinds func() ([]client.Kind, error)) ([]offline.ResourceKey, error) {
	var out []offline.ResourceKey
	for _, s := range list {
		r, err := a.referenceAmong([]string{s}, kinds)
		if err != nil {
			return nil, fmt.Errorf("--delete %s: %w", s, err)
		}
		out = append(out, offline.ResourceKey{Kind: r.kind.Kind, Mesh: r.mesh, Name: r.name})
	}
	return out, nil
}

// diffWarnings writes what a change would bring about.
func (a *app) diffWarnings(d *client.Diff) {
	for _, w := range d.Warnings {
		printf(a.stderr, "warning: %s: %s\n", w.Resource, w.Reason)
	}
	refused := 0
	for i := range d.Findings {
		f := &d.Findings[i]
		if f.Blocks() {
			refused++
			printf(a.stderr, "would break: %s\n", f.Line())
		} else {
			printf(a.stderr, "warning: %s\n", f.Line())
		}
	}
	if refused > 0 {
		printLine(a.stderr, "apply would refuse this: Envoy could not use what it makes")
	}
}

// printDiff writes a comparison in a format.
func (a *app) printDiff(d *client.Diff, format string) error {
	if ok, err := a.printed(format, d); ok {
		return err
	}
	a.diffWarnings(d)
	switch format {
	case "jsonpatch":
		patches := map[string]any{}
		for _, p := range d.Proxies {
			if p.Truncated {
				return fmt.Errorf("the patches of all proxies are too many; ask for one with --dataplane")
			}
			if len(p.Config.Patch) > 0 {
				patches[p.Mesh+"/"+p.Name] = p.Config.Patch
			}
		}
		return printJSON(a.stdout, patches)
	case "summary":
		return diffSummary(a.stdout, d)
	}
	return diffText(a.stdout, d)
}
