package ui

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
)

// showFiles runs an agent on the files of the flags, and calls use with the socket of its API and
// the temporary directory of its files.
func showFiles(ctx context.Context, env *command.Env, f *command.FileFlags,
	use func(ctx context.Context, socket, temp string) error) error {
	if env.Program.RunFiles == nil {
		return errors.New("this program has no agent; use nearside")
	}
	texts, err := f.Read(env.Stdin) // reports wrong paths and variables
	if err != nil {
		return err
	}
	temp, err := os.MkdirTemp("", "nearside-ui-")
	if err != nil {
		return fmt.Errorf("create a temporary directory: %w; set TMPDIR to a directory that you may write to", err)
	}
	defer os.RemoveAll(temp)
	dirs := watchable(f)
	if dirs == nil {
		dir := filepath.Join(temp, "files")
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
		for i, t := range texts {
			name := strings.Map(func(c rune) rune {
				if c == '/' || c == '<' || c == '>' {
					return '_'
				}
				return c
			}, strings.Trim(t.Name, "./"))
			switch filepath.Ext(name) {
			case ".yaml", ".yml", ".json":
			default:
				name += ".yaml"
			}
			const longest = 200 // bytes of a file name, less those of the number
			if len(name) > longest {
				name = name[len(name)-longest:]
			}
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%04d-%s", i, name)), t.Data, 0o600); err != nil {
				return err
			}
		}
		dirs = []string{dir}
	}
	return env.Program.RunFiles(ctx, env, command.FilesOptions{Dirs: dirs, Temp: temp},
		func(ctx context.Context, socket string) error { return use(ctx, socket, temp) })
}

// maxDirs is the number of directories that an agent can watch.
const maxDirs = 16

// watchable returns the folders of the flags if an agent can read them as they are: without
// subfolders, variables, and single files. Otherwise it returns nil.
func watchable(f *command.FileFlags) []string {
	if f.Recursive || f.HasVars() || len(f.Paths) > maxDirs {
		return nil
	}
	var out []string
	for _, p := range f.Paths {
		abs, err := filepath.Abs(p)
		if err != nil {
			return nil
		}
		if st, err := os.Stat(abs); err != nil || !st.IsDir() {
			return nil
		}
		out = append(out, abs)
	}
	return out
}
