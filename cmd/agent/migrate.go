package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/answer/offline"
	"github.com/nearside-mesh/nearside/agent/serve/client"
)

// migration is the flags of migrate.
type migration struct {
	files      fileFlags
	types      []string
	dataplanes []string
	dir        string
	force      bool
}

func (a *app) migrateCommand() *cobra.Command {
	var m migration
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Derive new policies from the legacy ones and show what they change",
		Long: `Makes, for the legacy policies of a mesh, targetRef policies with the same meaning, labelled
kuma.io/effect: shadow so that they touch no proxy, and shows what they change once they are live. Each change has its
reason; one without is marked and needs a look. Nothing is stored: the policies go to standard output as a stream for
apply, or with --write into files, and the report goes to standard error. -o json has both in one document.

With -f the answer is computed from these resources alone, without any agent and by the same code; the zone is then
NEARSIDE_NODE_ZONE. docs/migration.md describes the whole migration.`,
		Example: `  nearside migrate --write policies/
  nearside migrate --type Timeout --dataplane web
  nearside migrate | nearside apply -f -
  nearside migrate -m shop -f resources/ -o json`,
		Args: args(0, 0, "no arguments"),
	}
	a.meshFlag(cmd)
	m.files.add(cmd, "compute offline from these resources")
	fl := cmd.Flags()
	fl.StringSliceVar(&m.types, "type", nil, "legacy TYPE to migrate; repeatable; default all")
	fl.StringSliceVar(&m.dataplanes, "dataplane", nil,
		"dataplane whose config is compared; repeatable; default all of the mesh")
	fl.StringVar(&m.dir, "write", "", "folder to write each new policy into, as a file of its own")
	fl.BoolVar(&m.force, "force", false, "let --write replace files that hold something else")
	a.completeDataplanes(cmd, "dataplane")
	_ = cmd.MarkFlagDirname("write") // fails only for a flag that does not exist
	format := outputFlag(cmd, "yaml", "json", "name")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if m.force && m.dir == "" {
			return usagef("--force belongs to --write, which is missing")
		}
		return a.migrate(cmd.Context(), &m, *format)
	}
	return cmd
}

func (a *app) migrate(ctx context.Context, m *migration, format string) error {
	opts := offline.MigrateOptions{Mesh: a.mesh, Dataplanes: m.dataplanes}
	for _, t := range m.types {
		k, err := findKind(offline.Kinds(), t)
		if err != nil {
			return err
		}
		if !k.Legacy {
			return usagef("--type %q is not a legacy kind", t)
		}
		opts.Kinds = append(opts.Kinds, k.Kind)
	}
	var o *offline.Offline
	var err error
	if len(m.files.paths) > 0 {
		opts.Zone = a.getenv("NEARSIDE_NODE_ZONE")
		o, err = a.offline(&m.files)
	} else {
		o, opts.Zone, err = a.stored(ctx)
	}
	if err != nil {
		return err
	}
	out, err := o.Migrate(opts)
	if err != nil {
		return err
	}
	whole := isDocument(format) && format != "yaml" // -o yaml is what apply takes
	if !whole {
		a.migrationText(out)
	}
	if m.dir != "" {
		if err := a.writePolicies(m, out, format); err != nil {
			return err
		}
	}
	switch {
	case whole:
		_, err := a.printed(format, out)
		return err
	case format == "name":
		for _, p := range out.Policies {
			printLine(a.stdout, typeAndName(p.Type, p.Name))
		}
	case m.dir == "":
		return printStream(a.stdout, each(out.Policies, func(p offline.MigratedPolicy) json.RawMessage { return p.Resource }))
	}
	return nil
}

// stored reads what the agent holds of the mesh, and the agent's zone.
func (a *app) stored(ctx context.Context) (*offline.Offline, string, error) {
	c := a.client()
	index, err := c.Index(ctx)
	if err != nil {
		return nil, "", err
	}
	kinds, err := c.Kinds(ctx)
	if err != nil {
		return nil, "", err
	}
	var texts []offline.Text
	for _, k := range kinds {
		mesh := a.mesh
		if k.Global {
			mesh = ""
		}
		items, err := c.List(ctx, k.Plural, mesh)
		if err != nil {
			return nil, "", err
		}
		text := offline.Text{Name: k.Plural + " of the agent", Shown: true}
		for _, it := range items {
			if k.Policy && bytes.Contains(it.Resource, []byte(offline.Redacted)) {
				d, err := readDocument(it)
				if err != nil {
					return nil, "", err
				}
				return nil, "", fmt.Errorf("%s/%s holds a secret, which the agent does not show; "+
					"migrate the files that it came from, with -f", k.Kind, d.Name)
			}
			text.Data = append(append(text.Data, it.Resource...), "\n---\n"...)
		}
		texts = append(texts, text)
	}
	o, faults := offline.Read(texts)
	if err := faults.Err(); err != nil {
		return nil, "", fmt.Errorf("what the agent holds is not understood; use the command of the agent's version: %w", err)
	}
	return o, index.Zone, nil
}

// writePolicies writes each policy into a file of its own. Nothing is written when a file is there
// that holds something else, unless --force says so.
func (a *app) writePolicies(m *migration, out *offline.Migration, format string) error {
	if err := os.MkdirAll(m.dir, 0o755); err != nil {
		return fmt.Errorf("--write: %w", err)
	}
	files := make(map[string][]byte, len(out.Policies))
	var names, taken []string
	for _, p := range out.Policies {
		var b bytes.Buffer
		if err := printYAML(&b, p.Resource); err != nil {
			return err
		}
		name := filepath.Join(m.dir, strings.ToLower(p.Type)+"-"+p.Name+".yaml")
		switch have, err := os.ReadFile(name); {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return fmt.Errorf("--write: %w", err)
		case bytes.Equal(have, b.Bytes()):
			continue
		case !m.force:
			taken = append(taken, name)
		}
		names = append(names, name)
		files[name] = b.Bytes()
	}
	if len(taken) > 0 {
		return fmt.Errorf("--write: %s is there and holds something else (%s in all); nothing was written: give another "+
			"folder, or --force", taken[0], counted(len(taken), "file"))
	}
	for _, name := range names {
		if err := renameio.WriteFile(name, files[name], 0o644, renameio.WithTempDir(m.dir)); err != nil {
			return fmt.Errorf("--write: %w", err)
		}
		if format == "yaml" {
			printLine(a.stdout, name)
		}
	}
	return nil
}

// migrationText is the report of a migration, for people.
func (a *app) migrationText(m *offline.Migration) {
	w := a.stderr
	if len(m.Policies)+len(m.Without) == 0 {
		printf(w, "no legacy policies act in mesh %s\n", m.Mesh)
		return
	}
	for _, p := range m.Policies {
		printf(w, "%s/%s, from %s\n", p.Type, p.Name, strings.Join(p.From, ", "))
		if p.Stored {
			printLine(w, "  a shadow policy of this name is stored: applying this one takes its place")
		}
		for _, n := range p.Notes {
			printf(w, "  note: %s\n", n)
		}
	}
	for _, l := range m.Without {
		printf(w, "no policy, from %s: %s\n", l.Policy, l.Why)
	}
	for _, warning := range m.Warnings {
		printf(w, "warning: %s\n", warning)
	}
	changesText(w, "when the new policies are live",
		m.Dataplanes, func(p *offline.MigratedProxy) []offline.MigrationChange { return p.Live })
	changesText(w, "when the legacy policies are deleted after that",
		m.Dataplanes, func(p *offline.MigratedProxy) []offline.MigrationChange { return p.Deleted })
}

// A report for people lists the changes of so many dataplanes, and so many of each reason.
const (
	maxProxies   = 20
	maxPerReason = 20
)

// changesText lists what changes on dataplanes at one step: by reason, and first what has none.
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
		printf(w, "\n%s: nothing changes on %s\n", title, counted(len(proxies), "dataplane"))
		return
	}
	printf(w, "\n%s:\n", title)
	shown := 0
	for i := range proxies {
		list := of(&proxies[i])
		if len(list) == 0 {
			continue
		}
		if shown++; shown > maxProxies {
			printf(w, "  … and %d more dataplanes; --dataplane NAME shows one, -o json all\n", changed-maxProxies)
			break
		}
		proxyChanges(w, proxies[i].Name, list)
	}
	if len(same) > 0 {
		printf(w, "  nothing changes on %s\n", some(same))
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
	printf(w, "  %s: %s", name, counted(len(list), "change"))
	switch {
	case open > 0:
		printf(w, ", %d to look at", open)
	case same == len(list):
		printf(w, ", without effect")
	}
	printLine(w)
	for _, why := range reasons {
		printf(w, "    %s\n", why)
		for i, c := range by[why] {
			if i == maxPerReason {
				printf(w, "      … and %d more; -o json has all\n", len(by[why])-i)
				break
			}
			printf(w, "      %s\n", changeText(&c))
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
