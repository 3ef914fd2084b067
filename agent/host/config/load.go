package config

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/strict"
)

// LoadOptions specifies the sources of a config. The zero value reads [DefaultConfigFile], if it
// exists, and no variables.
type LoadOptions struct {
	File string   // "": DefaultConfigFile if it exists; a specified file must exist
	Env  []string // NAME=value, as returned by os.Environ
	Set  []string // key=value of --set; later values override earlier ones
	// Warn is called for unusual but valid input, such as a variable without a key. It may be nil.
	Warn func(string)

	// Overrides for tests; zero values query the system.
	Dir      string // working directory
	Hostname string
	UID      func() int
}

// Origins maps each key to the source of its value: "flag", "env NAME", "file PATH:LINE", or
// "default".
type Origins map[string]string

// EnvPrefix is the prefix of variables that set keys.
const EnvPrefix = "NEARSIDE_"

// autoReachable is the short form of the variable for mesh.autoReachableBackends.
const autoReachable = EnvPrefix + "AUTO_REACHABLE_BACKENDS"

// otherEnv are variables of the clients, which do not set keys.
var otherEnv = [...]string{EnvPrefix + "SOCKET", EnvPrefix + "CONFIG", EnvPrefix + "KEY", EnvPrefix + "MESH",
	EnvPrefix + "SERVER", EnvPrefix + "TOKEN_FILE", EnvPrefix + "CA"}

const (
	maxConfigBytes = 1 << 20
	maxConfigNodes = 1 << 17
)

// EnvName returns the variable that sets a key: accessLog.files.maxFiles becomes
// NEARSIDE_ACCESSLOG_FILES_MAXFILES.
func EnvName(key string) string {
	return EnvPrefix + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

// Load reads the config. Flags override variables, variables override the file, and the file
// overrides defaults. A variable with an empty value is ignored; "--set key=" sets the empty value.
// Relative paths are below their entry of paths. For paths.* and resources.dir they are relative to
// the directory of the file if set there, and otherwise to the working directory. Without a file
// and without root, all paths are below $XDG_RUNTIME_DIR/nearside or ./nearside-data, except that
// state and logs are below $XDG_STATE_HOME/nearside if it is set, or below ~/.local/state/nearside
// if there is a runtime directory (XDG Base Directory Specification).
//
// Load returns all faults at once. If there are any, the config must not be used.
func Load(o LoadOptions) (*Config, Origins, strict.Faults) {
	if o.Hostname == "" {
		o.Hostname, _ = os.Hostname() // nodeName accepts an empty name
	}
	if o.Dir == "" {
		if o.Dir, _ = os.Getwd(); o.Dir == "" {
			o.Dir = "/"
		}
	}
	l := loader{o: o, cfg: defaults(o.Hostname), origins: Origins{}, bases: map[string]string{},
		lines: map[string]strict.Fault{}}
	l.fields = l.cfg.fields()
	for _, f := range l.fields {
		l.origins[f.path] = "default"
	}
	l.file()
	l.env()
	l.flags()
	l.resolve(l.fields, "")
	l.cfg.DNS.Given = l.origins["dns.listen"] != "default"
	faults := append(l.faults, l.locate(l.cfg.Validate())...)
	if faults == nil && o.Warn != nil {
		for _, w := range slices.Concat(l.cfg.Warnings(), l.cfg.checked()) {
			o.Warn(w)
		}
	}
	return l.cfg, l.origins, faults
}

type loader struct {
	o       LoadOptions
	cfg     *Config
	fields  []field // of cfg
	origins Origins
	bases   map[string]string       // directory for relative paths, by key
	lines   map[string]strict.Fault // where a key is set; defaults have no entry
	faults  strict.Faults
}

func (l *loader) fault(file, key, reason string) {
	l.faults = append(l.faults, strict.Fault{File: file, Field: key, Reason: reason})
}

// file reads the config file, or sets the defaults for a missing one.
func (l *loader) file() {
	name, named := l.o.File, l.o.File != ""
	if !named {
		name = DefaultConfigFile
	}
	if !filepath.IsAbs(name) {
		name = filepath.Join(l.o.Dir, name)
	}
	name = filepath.Clean(name)
	data, err := readConfig(name)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !named:
		l.noFile()
		return
	case errors.Is(err, fs.ErrNotExist):
		l.fault(name, "", "the config file does not exist; use the path of an existing file")
		return
	case err != nil:
		l.fault(name, "", fmt.Sprintf("the config file cannot be read: %v", err))
		return
	}
	root, fault := strict.One(data, limits)
	if fault != nil {
		l.take(name, strict.Faults{*fault})
	} else if root != nil {
		expandLists(root)
		l.apply(root, name, filepath.Dir(name), func(line int) string { return fmt.Sprintf("file %s:%d", name, line) })
	}
}

// expandLists replaces each list that stands for a mapping with one key by that mapping.
func expandLists(root *strict.Node) {
	for _, f := range keysOf(reflect.ValueOf(new(Config)).Elem(), "") {
		for i, p := range root.Pairs {
			if key := f.tag.Get("list"); key != "" && p.Key == f.path && p.Value.Kind == strict.List {
				n := nest(key, p.Value)
				n.Line, n.Pairs[0].Line = p.Value.Line, p.Line
				root.Pairs[i].Value = n
			}
		}
	}
}

// apply sets the keys of a tree that have no faults, and records the faults.
func (l *loader) apply(root *strict.Node, file, base string, origin func(line int) string) {
	given, d := new(Config), newDecoder()
	d.Check(root)
	d.Decode(root, given)
	faults := d.Finish()
	l.take(file, faults)
	for i, f := range given.fields() {
		n, line := root.Find(f.path)
		if n == nil || slices.ContainsFunc(faults, func(x strict.Fault) bool { return strict.Within(x.Field, f.path) }) {
			continue
		}
		l.fields[i].at.Set(f.at)
		l.origins[f.path], l.bases[f.path] = origin(line), base
		l.lines[f.path] = strict.Fault{File: file, Line: line}
	}
}

// noFile sets default paths that the user can write.
func (l *loader) noFile() {
	uid := os.Geteuid
	if l.o.UID != nil {
		uid = l.o.UID
	}
	if uid() == 0 {
		return
	}
	base := filepath.Join(l.o.Dir, "nearside-data")
	lasting := base
	if dir := lookupEnv(l.o.Env, "XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		base = filepath.Join(dir, "nearside")
		lasting = base
		// the runtime directory is deleted when the user logs out
		if home := lookupEnv(l.o.Env, "HOME"); filepath.IsAbs(home) {
			lasting = filepath.Join(home, ".local", "state", "nearside")
		}
	}
	if dir := lookupEnv(l.o.Env, "XDG_STATE_HOME"); filepath.IsAbs(dir) {
		lasting = filepath.Join(dir, "nearside")
	}
	l.cfg.unprivileged(base, lasting)
}

// env applies the variables.
func (l *loader) env() {
	for _, kv := range l.o.Env {
		name, v, _ := strings.Cut(kv, "=")
		if v == "" || !strings.HasPrefix(name, EnvPrefix) {
			continue
		}
		full := name
		if name == autoReachable {
			full = EnvName("mesh.autoReachableBackends")
			if lookupEnv(l.o.Env, full) != "" {
				continue // the full name takes precedence regardless of order
			}
		}
		i := slices.IndexFunc(l.fields, func(f field) bool { return EnvName(f.path) == full })
		switch {
		case i >= 0:
			l.set(l.fields[i], v, "env "+name, "env "+name)
		case l.o.Warn != nil && !slices.Contains(otherEnv[:], name):
			l.o.Warn(fmt.Sprintf("the variable %.64s sets no key of the config; \"nearside config schema\" lists the keys",
				name))
		}
	}
}

// flags applies --set.
func (l *loader) flags() {
	for _, kv := range l.o.Set {
		key, v, ok := strings.Cut(kv, "=")
		if !ok {
			l.fault("--set", fmt.Sprintf("%.64s", kv), "has no value; write key=value, as in node.zone=east")
			continue
		}
		i := slices.IndexFunc(l.fields, func(f field) bool { return f.path == key })
		if i < 0 {
			l.fault("--set", fmt.Sprintf("%.64s", key), "is not a key of the config"+
				cmp.Or(suggest(key, paths(l.fields)), suggestSuffix(key)))
			continue
		}
		l.set(l.fields[i], v, "--set", "flag")
	}
}

// set applies the value of a variable or flag.
func (l *loader) set(f field, v, file, origin string) {
	n, fault := f.textNode(v)
	if fault != nil {
		l.take(file, strict.Faults{*fault})
		return
	}
	l.apply(nest(f.path, n), file, l.o.Dir, func(int) string { return origin })
}

// take records the faults of a file, variable, or flag.
func (l *loader) take(file string, faults strict.Faults) {
	for _, f := range faults {
		f.File = file
		l.faults = append(l.faults, f)
	}
}

// locate adds the location of keys to faults of the keys or parts of their values.
func (l *loader) locate(faults strict.Faults) strict.Faults {
	for i := range faults {
		f := &faults[i]
		for key, at := range l.lines {
			if rest, ok := strings.CutPrefix(f.Field, key); ok && (rest == "" || rest[0] == '[') {
				f.File, f.Line = at.File, at.Line
			}
		}
	}
	return faults
}

// resolve makes paths absolute, beginning with the entries of paths. For the keys of an item, list
// is the key of the list.
func (l *loader) resolve(fields []field, list string) {
	for _, f := range fields {
		for _, keys := range f.items() {
			l.resolve(keys, cmp.Or(list, f.path))
		}
		if f.tag.Get("check") == "receiver" {
			if path, unix := strings.CutPrefix(f.at.String(), unixPrefix); unix && !filepath.IsAbs(path) {
				f.at.SetString(unixPrefix + filepath.Join(l.cfg.Paths.Run, path))
			}
		}
		switch {
		case !f.has("path"):
		case f.at.Kind() == reflect.Slice && !f.hasItems():
			for i := range f.at.Len() {
				l.resolveText(f, f.at.Index(i), list)
			}
		case f.at.Kind() == reflect.String:
			l.resolveText(f, f.at, list)
		}
	}
}

// resolveText makes one path of a key absolute.
func (l *loader) resolveText(f field, at reflect.Value, list string) {
	p := at.String()
	if p == "" {
		return
	}
	below := cmp.Or(l.bases[cmp.Or(list, f.path)], l.o.Dir)
	switch f.tag.Get("path") {
	case "run":
		below = l.cfg.Paths.Run
	case "state":
		below = l.cfg.Paths.State
	case "logs":
		below = l.cfg.Paths.Logs
	}
	if filepath.IsAbs(p) {
		below = ""
	}
	at.SetString(filepath.Join(below, p))
}

// readConfig reads a regular file of limited size.
func readConfig(name string) ([]byte, error) {
	switch st, err := os.Stat(name); {
	case err != nil:
		return nil, err
	case !st.Mode().IsRegular():
		return nil, errors.New("it is not a regular file")
	case st.Size() > maxConfigBytes:
		return nil, fmt.Errorf("it has more than %d bytes", maxConfigBytes)
	}
	return os.ReadFile(name)
}

// lookupEnv returns the value of a variable; the last one applies.
func lookupEnv(env []string, name string) string {
	for _, kv := range slices.Backward(env) {
		if n, v, _ := strings.Cut(kv, "="); n == name {
			return v
		}
	}
	return ""
}

func paths(keys []field) []string {
	out := make([]string, len(keys))
	for i := range keys {
		out[i] = keys[i].path
	}
	return out
}
