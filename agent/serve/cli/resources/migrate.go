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
	_ = cmd.MarkFlagDirname("write") // fails only for an undefined flag
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
		return fmt.Errorf("--write: %s is there and holds something else (%s in all); nothing was written: give another "+
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
