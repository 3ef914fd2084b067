package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/answer/offline"
	"github.com/nearside-mesh/nearside/agent/serve/client"
)

func (a *app) editCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "edit TYPE NAME",
		Short: "Change a resource in an editor",
		Long: `Opens a resource in the editor that VISUAL or EDITOR names (vi without them), and applies what it is when the editor ends. Nothing is
written when nothing was changed, when the editor fails, or when the resource was changed by somebody else meanwhile. What could not be
applied stays in a file, which the message names. What comes from the resource directory is edited there.`,
		Example:           "  nearside edit meshtimeout slow\n  EDITOR='code --wait' nearside edit dataplane web -m shop",
		Args:              args(1, 2, "TYPE NAME or TYPE/NAME"),
		ValidArgsFunction: a.completeTypeAndName,
	}
	a.meshFlag(cmd)
	format := outputFlag(cmd, "text", "json", "yaml", "name")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r, err := a.reference(cmd.Context(), args)
		if err != nil {
			return err
		}
		item, err := a.client().Get(cmd.Context(), r.kind.Plural, r.mesh, r.name)
		if err != nil {
			return err
		}
		if kind, at, _ := strings.Cut(item.Meta.Source, ":"); kind != "api" && kind != "gossip" {
			return fmt.Errorf("%s is managed by %s and is changed there: %s", typeAndName(r.kind.Kind, r.name), kind,
				cmp.Or(at, item.Meta.Source))
		}
		var before bytes.Buffer
		printf(&before, "# %s%s: save and leave the editor to apply it; leave it without a change to change nothing.\n",
			typeAndName(r.kind.Kind, r.name), inMesh(r.mesh))
		if err := printYAML(&before, item.Resource); err != nil {
			return err
		}
		after, path, err := a.edited(cmd.Context(), before.Bytes())
		if err != nil {
			return err
		}
		if bytes.Equal(before.Bytes(), after) {
			_ = os.Remove(path)
			printLine(a.stderr, "nothing was changed")
			return nil
		}
		w, err := a.replace(cmd.Context(), item, path, after)
		if err != nil {
			return &keptError{err, path}
		}
		_ = os.Remove(path) // it holds nothing that is not stored
		return a.written(*format, diffSummary)(w, nil)
	}
	return cmd
}

// replace applies what was edited, which has to be the same resource.
func (a *app) replace(ctx context.Context, item *client.Item, path string, after []byte) (*client.Written, error) {
	o, faults := offline.Read([]offline.Text{{Name: path, Data: after, Shown: true}})
	if err := faults.Err(); err != nil {
		return nil, err
	}
	d, err := readDocument(*item)
	if err != nil {
		return nil, err
	}
	if k := o.Keys(); len(k) != 1 || k[0].Kind != d.Type || k[0].Mesh != d.Mesh || k[0].Name != d.Name {
		return nil, &exitError{err: fmt.Errorf("the file no longer holds %s and nothing else: type, "+
			"mesh and name of a resource stay as they are", typeAndName(d.Type, d.Name)), code: exitInvalid}
	}
	stream, err := o.Stream()
	if err != nil {
		return nil, err
	}
	return a.client().Replace(ctx, stream, item.Meta.ETag)
}

// edited has somebody edit a text in a file of his own.
func (a *app) edited(ctx context.Context, text []byte) (after []byte, path string, err error) {
	f, err := os.CreateTemp("", "nearside-edit-*.yaml") // of mode 0600
	if err != nil {
		return nil, "", err
	}
	path = f.Name()
	_, err = f.Write(text)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, path, err
	}
	editor := cmp.Or(a.getenv("VISUAL"), a.getenv("EDITOR"), "vi")
	// the variable holds a command line, as other programs take it
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", editor+` "$1"`, "sh", path)
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.Env = a.stdin, verbatim(a.stdout), verbatim(a.stderr), a.env
	if out, ok := cmd.Stdout.(*checkedWriter); ok {
		cmd.Stdout = out.w // the terminal itself
	}
	if err := cmd.Run(); err != nil {
		_ = os.Remove(path)
		return nil, path, fmt.Errorf("the editor %q has failed (%w), so nothing is changed; set EDITOR to one that is there",
			editor, err)
	}
	after, err = readFile(path)
	return after, path, err
}

// keptError is why a change was not applied, and where it is.
type keptError struct {
	err  error
	path string
}

func (e *keptError) Error() string { return e.err.Error() }
func (e *keptError) Unwrap() error { return e.err }
func (e *keptError) Hint() string  { return fileHint(e.path) }
