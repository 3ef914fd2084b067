package resources

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/answer/offline"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
)

func editCommand(env *command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "edit TYPE NAME",
		Short: "Change a resource in an editor",
		Long: `Opens a resource in the editor of VISUAL or EDITOR, or else in vi, and applies the result. Nothing
is written if you change nothing, if the editor fails, or if the resource was changed in the
meantime. If the result cannot be applied, it stays in a file that the error names. Edit resources
from the resource directory there. --sign signs the result.`,
		Example: "  nearside edit meshtimeout slow\n  EDITOR='code --wait' nearside edit dataplane web -m shop",
		Args:    command.Args(1, 2, "TYPE NAME or TYPE/NAME"),
	}
	var key command.KeyFlag
	command.ResourceFlags(env, cmd)
	key.Add(cmd)
	format := command.OutputFlag(cmd, "text", "json", "yaml", "name")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r, err := command.Resolve(cmd.Context(), env, args)
		if err != nil {
			return err
		}
		item, err := env.Client().Get(cmd.Context(), r.Kind.Plural, r.Mesh, r.Name)
		if err != nil {
			return err
		}
		if kind, at, _ := strings.Cut(item.Meta.Source, ":"); kind != "api" && kind != "gossip" {
			return fmt.Errorf("%s is managed by %s; change it there: %s", text.TypeAndName(r.Kind.Kind, r.Name), kind,
				cmp.Or(at, item.Meta.Source))
		}
		var before bytes.Buffer
		text.Printf(&before, "# %s%s: save and exit to apply your changes; exit without changes to cancel.\n",
			text.TypeAndName(r.Kind.Kind, r.Name), text.InMesh(r.Mesh))
		if err := text.YAML(&before, item.Resource); err != nil {
			return err
		}
		after, path, err := command.Edited(cmd.Context(), env, before.Bytes())
		if err != nil {
			return err
		}
		if bytes.Equal(before.Bytes(), after) {
			_ = os.Remove(path)
			text.Println(env.Stderr, "nothing was changed")
			return nil
		}
		w, err := replace(cmd.Context(), env, &key, item, path, after)
		if err != nil {
			return command.Hinted(err, fileHint(path))
		}
		_ = os.Remove(path) // everything in it is stored
		return printWritten(env, *format, text.DiffSummary)(w, nil)
	}
	return cmd
}

// replace applies the edited document. It refuses a document of another resource.
func replace(ctx context.Context, env *command.Env, key *command.KeyFlag, item *api.Item, path string,
	after []byte) (*api.Written, error) {
	o, faults := offline.Read([]offline.Text{{Name: path, Data: after, Shown: true}})
	if err := faults.Err(); err != nil {
		return nil, err
	}
	d, err := readDocument(*item)
	if err != nil {
		return nil, err
	}
	if k := o.Keys(); len(k) != 1 || k[0].Kind != d.Type || k[0].Mesh != d.Mesh || k[0].Name != d.Name {
		return nil, command.Exit(command.ExitInvalid, fmt.Errorf("the file must contain only %s; the type, mesh, and name "+
			"of a resource cannot be changed", text.TypeAndName(d.Type, d.Name)))
	}
	if signs, err := key.Signs(env, o.Keys()); err != nil || signs {
		if err != nil {
			return nil, err
		}
		return applySigned(ctx, env, key, func() error { return sameAs(ctx, env, item, o.Keys()[0]) }, o)
	}
	stream, err := o.Stream()
	if err != nil {
		return nil, err
	}
	return env.Client().Replace(ctx, stream, item.Meta.ETag)
}

// sameAs returns an error if a resource has changed since it was read.
func sameAs(ctx context.Context, env *command.Env, item *api.Item, k resource.Key) error {
	now, err := env.Client().Get(ctx, k.Kind, k.Mesh, k.Name)
	if err == nil && now.Meta.ETag != item.Meta.ETag {
		err = fmt.Errorf("%s was changed in the meantime; edit it again", k)
	}
	return err
}
