package resources

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/nearside-mesh/nearside/agent/answer/offline"
	"github.com/nearside-mesh/nearside/agent/answer/render"
	"github.com/nearside-mesh/nearside/agent/answer/served"
	"github.com/nearside-mesh/nearside/agent/base/plural"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
)

// compareServed compares the configs of proxies with those that another server gave them.
func compareServed(ctx context.Context, env *command.Env, d *Comparison, format string) error {
	switch {
	case len(d.Against.Paths) > 0, len(d.deletes) > 0, d.Shadow, d.all:
		return command.Usagef("--served compares with configs; omit --against, --delete, --shadow, and --all-nodes")
	case format == "jsonpatch":
		return command.Usagef("--served compares the meaning of configs, which is no patch; give another format")
	}
	input, err := d.served.Read(env.Stdin)
	if err != nil {
		return err
	}
	compute := func(mesh, name string) (*api.Config, error) {
		return env.Client().Config(ctx, mesh, name, render.ConfigOptions{})
	}
	if len(d.files.Paths) > 0 {
		o, err := command.Offline(env, &d.files)
		if err != nil {
			return err
		}
		compute = func(mesh, name string) (*api.Config, error) {
			c, _, err := o.Config(env.Getenv("NEARSIDE_NODE_ZONE"), mesh, name, render.ConfigOptions{Computed: true})
			return c, err
		}
	}
	if d.Dataplane != "" && len(input) != 1 {
		return command.Usagef("--dataplane names the proxy of one file, and --served has %d; omit it, and name each file "+
			"after its dataplane", len(input))
	}
	var all served.Comparison
	if err := command.SelectMesh(ctx, env, &d.files); err != nil {
		return err
	}
	d.Mesh = env.Mesh
	for _, in := range input {
		if err := addServed(&all, in, d, compute); err != nil {
			return err
		}
	}
	report := all.Report()
	if ok, err := command.Printed(env, format, report); err != nil {
		return err
	} else if !ok {
		printServed(env.Stdout, report, format == "summary")
	}
	if report.Differs() {
		return command.Silent(exitDiffers)
	}
	return nil
}

// addServed compares the proxy of a file.
func addServed(all *served.Comparison, in offline.Text, d *Comparison,
	compute func(mesh, name string) (*api.Config, error)) error {
	mesh, name := d.Mesh, d.Dataplane
	if name == "" {
		base := filepath.Base(in.Name)
		name = strings.TrimSuffix(base, filepath.Ext(base))
	}
	was, err := served.Parse(in.Data)
	if err != nil {
		return command.Exit(command.ExitInvalid, fmt.Errorf("%s: %w", in.Name, err))
	}
	config, err := compute(mesh, name)
	if err != nil {
		return fmt.Errorf("%s: the config of dataplane %s in mesh %s: %w; name the file after its dataplane, "+
			"and select the mesh with -m", in.Name, name, mesh, err)
	}
	doc, err := json.Marshal(config)
	if err != nil {
		return err
	}
	is, err := served.Parse(doc)
	if err != nil {
		return errors.Join(errors.New("internal error: the computed config cannot be read"), err)
	}
	all.Add(mesh, name, was, is)
	return nil
}

// printServed writes a comparison with served configs: a line for each proxy, or each group.
func printServed(w io.Writer, r *served.Report, summary bool) {
	equal := 0
	for _, p := range r.Proxies {
		if p.Differences == 0 {
			equal++
		}
		if summary {
			line := "equal"
			if p.Differences > 0 {
				line = plural.Count(p.Differences, "difference")
			}
			text.Printf(w, "%s/%s: %s\n", p.Mesh, p.Name, line)
		}
	}
	if !summary {
		for _, g := range r.Groups {
			text.Printf(w, "%s\n", text.Layout(groupText(&g)))
		}
	}
	text.Printf(w, "%d of %s as served\n", equal, plural.Count(len(r.Proxies), "dataplane"))
}

// groupText describes a group of differences.
func groupText(g *served.Group) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", g.Field, g.Action)
	switch {
	case len(g.Served) > 0 && len(g.Computed) > 0:
		fmt.Fprintf(&b, ": %s -> %s", g.Served, g.Computed)
	case len(g.Served) > 0:
		fmt.Fprintf(&b, ", was %s", g.Served)
	case len(g.Computed) > 0:
		fmt.Fprintf(&b, ": %s", g.Computed)
	}
	fmt.Fprintf(&b, "\n  %s on %s, for example %s of %s", plural.Count(g.Places, "place"),
		plural.Count(g.Proxies, "proxy"), g.Example[1], g.Example[0])
	if g.Cause != "" {
		fmt.Fprintf(&b, "\n  cause: %s", g.Cause)
	}
	return b.String()
}
