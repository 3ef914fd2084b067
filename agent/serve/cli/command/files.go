package command

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/answer/offline"
	"github.com/nearside-mesh/nearside/agent/base/files"
	"github.com/nearside-mesh/nearside/agent/base/strict"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/token"
)

// maxInput bounds one file of resources. It is twice the limit of the decoder, so that the decoder
// reports the error.
const maxInput = 64 << 20

// FileFlags are -f, -R, and --var.
type FileFlags struct {
	Flag      string // name in errors
	Paths     []string
	Recursive bool

	vars variables
	read [2]*offline.Offline // decoded files; the second one may contain redacted secrets
}

// Add adds -f, -R, and --var.
func (f *FileFlags) Add(cmd *cobra.Command, what string) {
	f.AddPaths(cmd, what)
	cmd.Flags().StringArrayVar(&f.vars.assigned, "var", nil,
		"NAME=VALUE that replaces {{ NAME }} in the files; repeatable")
}

// AddPaths adds -f and -R.
func (f *FileFlags) AddPaths(cmd *cobra.Command, what string) {
	f.Flag = "-f"
	cmd.Flags().StringArrayVarP(&f.Paths, "file", "f", nil,
		what+": a file, a folder (its *.yaml, *.yml, and *.json), or - for standard input; repeatable")
	cmd.Flags().BoolVarP(&f.Recursive, "recursive", "R", false, "also read subfolders")
}

// HasVars reports whether variables are given.
func (f *FileFlags) HasVars() bool { return len(f.vars.assigned) > 0 }

// WithVars makes the files of f use the variables of other flags.
func (f *FileFlags) WithVars(other *FileFlags) {
	if other.vars.used == nil {
		other.vars.used = map[string]bool{}
	}
	f.vars = other.vars
}

// Online returns an error for variables without files.
func (f *FileFlags) Online() error {
	if len(f.Paths) == 0 && len(f.vars.assigned) > 0 {
		return Usagef("--var requires -f")
	}
	return nil
}

// Read returns the content of the files, with the values of variables. Files of a folder are sorted
// by name.
func (f *FileFlags) Read(stdin io.Reader) ([]offline.Text, error) {
	out, err := f.contents(stdin)
	if err == nil {
		err = f.vars.fill(out)
	}
	if err == nil && f.Flag == "-f" {
		err = f.vars.unused()
	}
	return out, err
}

// contents returns the content of the files.
func (f *FileFlags) contents(stdin io.Reader) ([]offline.Text, error) {
	if len(f.Paths) == 0 {
		return nil, Usagef("-f is missing: give a file, a folder, or - for standard input")
	}
	var out []offline.Text
	seenStdin := false
	for _, p := range f.Paths {
		switch {
		case p == "":
			return nil, Usagef("%s is empty: give a file, a folder, or - for standard input", f.Flag)
		case strings.HasPrefix(p, "http://"), strings.HasPrefix(p, "https://"):
			return nil, Usagef("%s %s: URLs are not supported; download and review the file, "+
				"and pass it: curl -fsS URL | nearside … %s -", f.Flag, p, f.Flag)
		}
		if p == "-" {
			if seenStdin {
				return nil, Usagef("-f - is given twice")
			}
			seenStdin = true
			data, err := readAll("standard input", stdin)
			if err != nil {
				return nil, err
			}
			out = append(out, offline.Text{Name: "<stdin>", Data: data})
			continue
		}
		info, err := os.Stat(p)
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w%s", f.Flag, p, Reason(err), f.near(p, err))
		}
		files := []string{p}
		if info.IsDir() {
			if files, err = f.folder(p); err != nil {
				return nil, fmt.Errorf("%s %s: %w", f.Flag, p, err)
			}
			if len(files) == 0 {
				return nil, Exit(ExitInvalid, fmt.Errorf("%s %s: the folder has no *.yaml, *.yml, or *.json%s",
					f.Flag, p, f.deeper()))
			}
		}
		for _, file := range files {
			data, mode, err := readWithMode(file)
			if err != nil {
				return nil, fmt.Errorf("%s %s: %w", f.Flag, file, Reason(err))
			}
			out = append(out, offline.Text{Name: file, Data: data, Mode: mode})
		}
	}
	return out, nil
}

// deeper returns a hint for a folder without files.
func (f *FileFlags) deeper() string {
	if f.Recursive {
		return ""
	}
	return "; -R also reads subfolders"
}

// near returns a hint for a file that does not exist.
func (f *FileFlags) near(path string, err error) string {
	if !errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	dir := filepath.Dir(filepath.Clean(path))
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "; the folder " + dir + " does not exist"
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if near := strict.Nearest(filepath.Base(path), names); near != "" {
		return "; did you mean " + filepath.Join(dir, near) + "?"
	}
	return "; give the path of a file or folder, or - for standard input"
}

// folder returns the resource files of a folder. It skips hidden files, and with them the ..data of
// a mounted ConfigMap.
func (f *FileFlags) folder(dir string) ([]string, error) {
	var files []string
	root := dir + string(filepath.Separator) // follows a symbolic link to a folder
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case p == root:
			return nil
		case strings.HasPrefix(d.Name(), "."), d.IsDir() && !f.Recursive:
			if d.IsDir() {
				return filepath.SkipDir
			}
			return nil
		case !d.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(p)):
			files = append(files, p)
		}
		return nil
	})
	slices.Sort(files)
	return files, err
}

// ReadFile returns the content of a file of up to maxInput bytes.
func ReadFile(path string) ([]byte, error) {
	data, _, err := readWithMode(path)
	return data, err
}

// readWithMode returns the content of a file, and its mode if it is a regular file.
func readWithMode(path string) ([]byte, fs.FileMode, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	defer file.Close()
	data, err := readAll(path, file)
	info, statErr := file.Stat()
	if statErr != nil || !info.Mode().IsRegular() {
		return data, 0, err
	}
	return data, info.Mode().Perm(), err
}

func readAll(name string, r io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxInput+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxInput {
		return nil, Exit(ExitInvalid, fmt.Errorf("%s has more than %d bytes; split the file", name, maxInput))
	}
	return data, nil
}

// Reason returns an error without the operation and the path.
func Reason(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// ErrNothing is the error for files without a resource.
var ErrNothing = Exit(ExitInvalid, errors.New("the files contain no resource; a resource has a type, a name, "+
	"and the fields of its kind, which nearside schema KIND lists"))

// StreamOf returns resources as the body of a request. It returns an error if they exceed the limit
// of the API.
func StreamOf(o *offline.Offline) ([]byte, error) {
	stream, err := o.Stream()
	if err == nil && len(stream) > api.MaxBody {
		err = Exit(ExitInvalid, fmt.Errorf("the resources have %d bytes in total, more than the %d that an agent accepts in "+
			"one request: apply the files one by one, and split large ones", len(stream), api.MaxBody))
	}
	return stream, err
}

// Offline reads and decodes the files of -f. Faults are an error.
func Offline(env *Env, f *FileFlags) (*offline.Offline, error) { return decoded(env, f, false) }

// ForAgent is [Offline] for documents that go to the agent, which may contain redacted secrets.
func ForAgent(env *Env, f *FileFlags) (*offline.Offline, error) { return decoded(env, f, true) }

func decoded(env *Env, f *FileFlags, shown bool) (*offline.Offline, error) {
	read := &f.read[0]
	if shown {
		read = &f.read[1]
	}
	if *read != nil {
		return *read, nil // standard input is read once
	}
	texts, err := f.Read(env.Stdin)
	if err != nil {
		return nil, err
	}
	for i := range texts {
		texts[i].Shown = shown
	}
	o, faults := offline.Read(texts)
	if err := faults.Err(); err != nil {
		return nil, err
	}
	if err := ReachByEnv(env, o); err != nil {
		return nil, err
	}
	*read = o
	return o, nil
}

// ReachByEnv sets from the environment how to derive what proxies reach.
func ReachByEnv(env *Env, o *offline.Offline) error {
	for _, v := range []struct {
		name string
		to   *bool
	}{
		{"NEARSIDE_AUTO_REACHABLE_BACKENDS", &o.AutoReachable}, {"NEARSIDE_MESH_FLATNETWORK", &o.FlatNetwork},
		{"NEARSIDE_DNS_REACHABLEONLY", &o.ReachableOnly},
	} {
		switch value := env.Getenv(v.name); value {
		case "", "false":
		case "true":
			*v.to = true
		default:
			return Usagef("%s is %q; set it to true or false", v.name, value)
		}
	}
	return nil
}

// WriteSecret atomically replaces a file. Only the owner can read the new one.
func WriteSecret(path string, data []byte) error {
	if st, err := os.Lstat(path); err == nil && !st.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file; give a file that can be replaced", path)
	}
	return files.ReplacePrivate(path, data)
}

// ReadToken reads a token from a file, or from standard input for "-".
func ReadToken(env *Env, path string) (string, error) {
	name, in := path, env.Stdin
	if path == "-" {
		name = "standard input"
	} else {
		f, err := os.Open(path)
		if err != nil {
			return "", fmt.Errorf("%s: %w", path, Reason(err))
		}
		defer f.Close()
		in = f
	}
	data, err := io.ReadAll(io.LimitReader(in, token.MaxBytes+3)) // with a line end
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, Reason(err))
	}
	return strings.TrimSpace(string(data)), nil
}
