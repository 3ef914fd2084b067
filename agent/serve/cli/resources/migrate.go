package resources

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/answer/offline"
	"github.com/nearside-mesh/nearside/agent/base/plural"
	"github.com/nearside-mesh/nearside/agent/model/secret"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
)

// migration holds the flags of migrate.
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
		Short: "Derive targetRef policies from legacy policies",
		Long: `Derives targetRef policies with the same meaning from the legacy policies of a mesh. The new
policies have the label kuma.io/effect: shadow, so that they affect no proxy. The report shows what
changes when they take effect, with a reason for each change. Changes without a known reason are
marked and need review.

Nothing is stored. The policies go to standard output for "nearside apply", or with --write to
files, and the report goes to standard error. -o json prints both in one document.

With -f, the answer comes only from these resources, without an agent; NEARSIDE_NODE_ZONE sets the
zone. docs/migration.md describes the whole migration.`,
		Example: `  nearside migrate --write policies/
  nearside migrate --type Timeout --dataplane web
  nearside migrate | nearside apply -f -
  nearside migrate -m shop -f resources/ -o json`,
	}
	command.MeshFlag(env, cmd)
	m.files.Add(cmd, "compute offline from these resources")
	fl := cmd.Flags()
	fl.StringSliceVar(&m.types, "type", nil, "legacy type to migrate; repeatable (default: all)")
	fl.StringSliceVar(&m.dataplanes, "dataplane", nil,
		"dataplane whose config is compared; repeatable (default: all of the mesh)")
	fl.StringVar(&m.dir, "write", "", "folder for the new policies, one file each")
	fl.BoolVar(&m.force, "force", false, "let --write overwrite files with other content")
	command.CompleteDataplanes(env, cmd, "dataplane", &env.Mesh)
	_ = cmd.MarkFlagDirname("write") // fails only for an undefined flag
	format := command.OutputFlag(cmd, "yaml", "json", "name")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if m.force && m.dir == "" {
			return command.Usagef("--force requires --write")
		}
		return migrate(cmd.Context(), env, &m, *format)
	}
	return cmd
}

func migrate(ctx context.Context, env *command.Env, m *migration, format string) error {
	if err := m.files.Online(); err != nil {
		return err
	}
	for i, d := range m.dataplanes {
		var err error
		if m.dataplanes[i], err = command.DataplaneName(ctx, env, &m.files, d); err != nil {
			return err
		}
	}
	if err := command.SelectMesh(ctx, env, &m.files); err != nil {
		return err
	}
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
		if o, err = command.Offline(env, &m.files); err == nil && o.Len() == 0 {
			err = command.ErrNothing
		}
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
	whole := command.IsDocument(format) && format != "yaml" // "apply" reads the output of -o yaml
	if !whole {
		text.Migration(env.Stderr, out)
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

// stored reads the agent's resources of the mesh, and the agent's zone.
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
				return nil, "", fmt.Errorf("%s/%s contains a secret, which the agent does not return; "+
					"migrate its files with -f", k.Kind, d.Name)
			}
			content.Data = append(append(content.Data, it.Resource...), "\n---\n"...)
		}
		texts = append(texts, content)
	}
	o, faults := offline.Read(texts)
	if err := faults.Err(); err != nil {
		return nil, "", fmt.Errorf("the resources of the agent cannot be read; use the command of the agent's version: %w",
			err)
	}
	return o, index.Zone, nil
}

// writePolicies writes each policy to its own file. Without --force, it writes nothing if a file
// exists with other content.
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
		return fmt.Errorf("--write: %s exists with other content (%s in total), so nothing was written; give another "+
			"folder, or --force", taken[0], plural.Count(len(taken), "file"))
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
