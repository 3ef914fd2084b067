package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"

	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
)

// Edited opens an editor on a temporary file, and returns its content and path.
func Edited(ctx context.Context, env *Env, content []byte) (after []byte, path string, err error) {
	f, err := os.CreateTemp("", "nearside-edit-*.yaml") // has mode 0600
	if err != nil {
		return nil, "", err
	}
	path = f.Name()
	_, err = f.Write(content)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, path, err
	}
	editor := cmp.Or(env.Getenv("VISUAL"), env.Getenv("EDITOR"), "vi")
	// Like other programs, run the variable as a shell command line.
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", editor+` "$1"`, "sh", path)
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.Env = env.Stdin, text.Verbatim(env.Stdout), text.Verbatim(env.Stderr), env.Vars
	if out, ok := cmd.Stdout.(*text.CheckedWriter); ok {
		cmd.Stdout = out.W // an editor needs the terminal itself
	}
	if err := cmd.Run(); err != nil {
		_ = os.Remove(path)
		return nil, path, fmt.Errorf("the editor %q failed (%w), so nothing was changed; set EDITOR to an installed editor",
			editor, err)
	}
	after, err = ReadFile(path)
	return after, path, err
}
