package resources

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
	"github.com/nearside-mesh/nearside/agent/base/jsonpatch"
	"github.com/nearside-mesh/nearside/agent/model/secret"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
)

// migration is the flags of migrate.
type migration struct {
	files      command.FileFlags
	types      []string
	dataplanes []string
	dir        string
	force      bool
}

func migrateCommand(env *command.Env) *cobra.Command {
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
		Args: command.Args(0, 0, "no arguments"),
	}
	command.MeshFlag(env, cmd)
	m.files.Add(cmd, "compute offline from these resources")
	fl := cmd.Flags()
	fl.StringSliceVar(&m.types, "type", nil, "legacy TYPE to migrate; repeatable; default all")
	fl.StringSliceVar(&m.dataplanes, "dataplane", nil,
		"dataplane whose config is compared; repeatable; default all of the mesh")
	fl.StringVar(&m.dir, "write", "", "folder to write each new policy into, as a file of its own")
	fl.BoolVar(&m.force, "force", false, "let --write replace files that hold something else")
	command.CompleteDataplanes(env, cmd, "dataplane", &env.Mesh)
	_ = cmd.MarkFlagDirname("write") // fails only for a flag that does not exist
	format := command.OutputFlag(cmd, "yaml", "json", "name")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if m.force && m.dir == "" {
			return command.Usagef("--force belongs to --write, which is missing")
		}
		return migrate(cmd.Context(), env, &m, *format)
	}
	return cmd
}

func migrate(ctx context.Context, env *command.Env, m *migration, format string) error {
	opts := offline.MigrateOptions{Mesh: env.Mesh, Dataplanes: m.dataplanes}
	for _, t := range m.types {
		k, err := command.FindKind(offline.Kinds(), t)
		if err != nil {
			return err
		}
		if !k.Legacy {
			return command.Usagef("--type %q is not a legacy kind", t)
		}
		opts.Kinds = append(opts.Kinds, k.Kind)
	}
	var o *offline.Offline
	var err error
	if len(m.files.Paths) > 0 {
		opts.Zone = env.Getenv("NEARSIDE_NODE_ZONE")
		o, err = command.Offline(env, &m.files)
	} else {
		o, opts.Zone, err = stored(ctx, env)
	}
	if err != nil {
		return err
	}
	out, err := o.Migrate(opts)
	if err != nil {
		return err
	}
	whole := command.IsDocument(format) && format != "yaml" // -o yaml is what apply takes
	if !whole {
		migrationText(env, out)
	}
	if m.dir != "" {
		if err := writePolicies(env, m, out, format); err != nil {
			return err
		}
	}
	switch {
	case whole:
		_, err := command.Printed(env, format, out)
		return err
	case format == "name":
		for _, p := range out.Policies {
			text.Println(env.Stdout, text.TypeAndName(p.Type, p.Name))
		}
	case m.dir == "":
		return text.YAMLStream(env.Stdout, text.Each(out.Policies, func(p offline.MigratedPolicy) json.RawMessage {
			return p.Resource
		}))
	}
	return nil
}

// stored reads what the agent holds of the mesh, and the agent's zone.
func stored(ctx context.Context, env *command.Env) (*offline.Offline, string, error) {
	c := env.Client()
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
		mesh := env.Mesh
		if k.Global {
			mesh = ""
		}
		items, err := c.List(ctx, k.Plural, mesh)
		if err != nil {
			return nil, "", err
		}
		content := offline.Text{Name: k.Plural + " of the agent", Shown: true}
		for _, it := range items {
			if k.Policy && bytes.Contains(it.Resource, []byte(secret.Redacted)) {
				d, err := readDocument(it)
				if err != nil {
					return nil, "", err
				}
				return nil, "", fmt.Errorf("%s/%s holds a secret, which the agent does not show; "+
					"migrate the files that it came from, with -f", k.Kind, d.Name)
			}
			content.Data = append(append(content.Data, it.Resource...), "\n---\n"...)
		}
		texts = append(texts, content)
	}
	o, faults := offline.Read(texts)
	if err := faults.Err(); err != nil {
		return nil, "", fmt.Errorf("what the agent holds is not understood; use the command of the agent's version: %w", err)
	}
	return o, index.Zone, nil
}

// writePolicies writes each policy into a file of its own. Nothing is written when a file is there
// that holds something else, unless --force says so.
func writePolicies(env *command.Env, m *migration, out *offline.Migration, format string) error {
	if err := os.MkdirAll(m.dir, 0o755); err != nil {
		return fmt.Errorf("--write: %w", err)
	}
	files := make(map[string][]byte, len(out.Policies))
	var names, taken []string
	for _, p := range out.Policies {
		var b bytes.Buffer
		if err := text.YAML(&b, p.Resource); err != nil {
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
			"folder, or --force", taken[0], text.Counted(len(taken), "file"))
	}
	for _, name := range names {
		if err := renameio.WriteFile(name, files[name], 0o644, renameio.WithTempDir(m.dir)); err != nil {
			return fmt.Errorf("--write: %w", err)
		}
		if format == "yaml" {
			text.Println(env.Stdout, name)
		}
	}
	return nil
}

// migrationText is the report of a migration, for people.
func migrationText(env *command.Env, m *offline.Migration) {
	w := env.Stderr
	if len(m.Policies)+len(m.Without) == 0 {
		text.Printf(w, "no legacy policies act in mesh %s\n", m.Mesh)
		return
	}
	for _, p := range m.Policies {
		text.Printf(w, "%s/%s, from %s\n", p.Type, p.Name, strings.Join(p.From, ", "))
		if p.Stored {
			text.Println(w, "  a shadow policy of this name is stored: applying this one takes its place")
		}
		for _, n := range p.Notes {
			text.Printf(w, "  note: %s\n", n)
		}
	}
	for _, l := range m.Without {
		text.Printf(w, "no policy, from %s: %s\n", l.Policy, l.Why)
	}
	for _, warning := range m.Warnings {
		text.Printf(w, "warning: %s\n", warning)
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
		text.Printf(w, "\n%s: nothing changes on %s\n", title, text.Counted(len(proxies), "dataplane"))
		return
	}
	text.Printf(w, "\n%s:\n", title)
	shown := 0
	for i := range proxies {
		list := of(&proxies[i])
		if len(list) == 0 {
			continue
		}
		if shown++; shown > maxProxies {
			text.Printf(w, "  … and %d more dataplanes; --dataplane NAME shows one, -o json all\n", changed-maxProxies)
			break
		}
		proxyChanges(w, proxies[i].Name, list)
	}
	if len(same) > 0 {
		text.Printf(w, "  nothing changes on %s\n", text.Some(same))
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
	text.Printf(w, "  %s: %s", name, text.Counted(len(list), "change"))
	switch {
	case open > 0:
		text.Printf(w, ", %d to look at", open)
	case same == len(list):
		text.Printf(w, ", without effect")
	}
	text.Println(w)
	for _, why := range reasons {
		text.Printf(w, "    %s\n", why)
		for i, c := range by[why] {
			if i == maxPerReason {
				text.Printf(w, "      … and %d more; -o json has all\n", len(by[why])-i)
				break
			}
			text.Printf(w, "      %s\n", migratedText(&c))
		}
	}
}

// migratedText is one change in a line, as diff writes it.
func migratedText(c *offline.MigrationChange) string {
	if c.Op != "remove" && c.Value == nil {
		c.Value = json.RawMessage("null")
	}
	f := jsonpatch.FieldChange{Path: c.Field, Before: c.Before, After: c.Value}
	return fmt.Sprintf("%s %s %s: %s", text.ShortType(c.Type), c.Name, text.ShortPath(f.Path), text.FieldText(&f))
}
