package main

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
	"github.com/nearside-mesh/nearside/agent/serve/client"
)

// maxInput bounds one file of resources: twice what the decoder takes, so that it is the decoder
// that refuses.
const maxInput = 64 << 20

// fileFlags is -f, and -R where folders may be walked.
type fileFlags struct {
	flag      string // its name in errors
	paths     []string
	recursive bool
}

func (f *fileFlags) add(cmd *cobra.Command, what string) {
	f.flag = "-f"
	cmd.Flags().StringArrayVarP(&f.paths, "file", "f", nil,
		what+": a file, a folder (its *.yaml, *.yml and *.json) or - for standard input; repeatable")
	cmd.Flags().BoolVarP(&f.recursive, "recursive", "R", false, "also read the folders inside a folder")
}

// read returns the texts behind -f, files of a folder sorted by name.
func (f *fileFlags) read(stdin io.Reader) ([]offline.Text, error) {
	if len(f.paths) == 0 {
		return nil, usagef("-f is missing: give a file, a folder or - for standard input")
	}
	var out []offline.Text
	seenStdin := false
	for _, p := range f.paths {
		switch {
		case p == "":
			return nil, usagef("%s is empty: give a file, a folder or - for standard input", f.flag)
		case strings.HasPrefix(p, "http://"), strings.HasPrefix(p, "https://"):
			return nil, usagef("%s %s: URLs are not fetched; fetch it yourself, look at it, "+
				"and hand it on: curl -fsS URL | nearside … %s -", f.flag, p, f.flag)
		}
		if p == "-" {
			if seenStdin {
				return nil, usagef("-f - is given twice")
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
			return nil, fmt.Errorf("%s %s: %w%s", f.flag, p, reason(err), f.near(p, err))
		}
		files := []string{p}
		if info.IsDir() {
			if files, err = f.folder(p); err != nil {
				return nil, fmt.Errorf("%s %s: %w", f.flag, p, err)
			}
			if len(files) == 0 {
				return nil, fmt.Errorf("%s %s: the folder has no *.yaml, *.yml or *.json%s", f.flag, p, f.deeper())
			}
		}
		for _, file := range files {
			data, mode, err := readWithMode(file)
			if err != nil {
				return nil, fmt.Errorf("%s %s: %w", f.flag, file, reason(err))
			}
			out = append(out, offline.Text{Name: file, Data: data, Mode: mode})
		}
	}
	return out, nil
}

// deeper is what to do about a folder without files.
func (f *fileFlags) deeper() string {
	if f.recursive {
		return ""
	}
	return "; -R also looks into the folders inside"
}

// near is what to do about a file that is not there.
func (f *fileFlags) near(path string, err error) string {
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
	if near := client.Nearest(filepath.Base(path), names); near != "" {
		return "; did you mean " + filepath.Join(dir, near) + "?"
	}
	return "; give the path of a file or folder that is there, or - for standard input"
}

// folder lists the resource files of a folder. Hidden files, and in a mounted ConfigMap its ..data,
// are left out.
func (f *fileFlags) folder(dir string) ([]string, error) {
	var files []string
	root := dir + string(filepath.Separator) // so that a link to a folder is followed
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case p == root:
			return nil
		case strings.HasPrefix(d.Name(), "."), d.IsDir() && !f.recursive:
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

func readFile(path string) ([]byte, error) {
	data, _, err := readWithMode(path)
	return data, err
}

// readWithMode returns what is in a file, and its mode where it is a regular one.
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
		return nil, &exitError{err: fmt.Errorf("%s has more than %d bytes; split it", name, maxInput), code: exitInvalid}
	}
	return data, nil
}

// reason is an error of a file without the operation and the path, which stand before it already.
func reason(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// errNothing is for files without a resource.
var errNothing = errors.New("the files hold no resource; a document of one has type, " +
	"name and what the kind has: nearside schema KIND lists that")

// streamOf returns resources as an agent takes them, unless they are too many for one request.
func streamOf(o *offline.Offline) ([]byte, error) {
	stream, err := o.Stream()
	if err == nil && len(stream) > client.MaxBody {
		err = &exitError{err: fmt.Errorf("the resources have %d bytes together, more than the %d that an agent takes at "+
			"once: give their files one after the other, and split large ones", len(stream), client.MaxBody), code: exitInvalid}
	}
	return stream, err
}

// offline reads and decodes what -f names; faults are an error.
func (a *app) offline(f *fileFlags) (*offline.Offline, error) { return a.decoded(f, false) }

// forAgent is offline for what is sent to the agent, which knows the secrets that it does not show.
func (a *app) forAgent(f *fileFlags) (*offline.Offline, error) { return a.decoded(f, true) }

func (a *app) decoded(f *fileFlags, shown bool) (*offline.Offline, error) {
	texts, err := f.read(a.stdin)
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
	return o, a.reachable(o)
}

// answer asks the agent, or where -f names files computes the same from these alone, and prints the
// warnings.
func answer[T any](a *app, f *fileFlags, online func() (T, error),
	compute func(o *offline.Offline, zone string) (T, []string, error)) (T, error) {
	if len(f.paths) == 0 {
		return online()
	}
	o, err := a.offline(f)
	if err != nil {
		var none T
		return none, err
	}
	v, warnings, err := compute(o, a.getenv("NEARSIDE_NODE_ZONE"))
	if err == nil {
		a.warn(warnings)
	}
	return v, err
}

// reachable says how what proxies reach is derived, by the environment.
func (a *app) reachable(o *offline.Offline) error {
	for _, v := range []struct {
		name string
		to   *bool
	}{
		{"NEARSIDE_AUTO_REACHABLE_BACKENDS", &o.AutoReachable}, {"NEARSIDE_MESH_FLATNETWORK", &o.FlatNetwork},
		{"NEARSIDE_DNS_REACHABLEONLY", &o.ReachableOnly},
	} {
		switch value := a.getenv(v.name); value {
		case "", "false":
		case "true":
			*v.to = true
		default:
			return usagef("%s is %q; set it to true or false", v.name, value)
		}
	}
	return nil
}
