package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/nearside-mesh/nearside/agent/clip"
	"github.com/nearside-mesh/nearside/agent/files"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// LoadOptions says where a config comes from. The zero value reads [DefaultConfigFile], if there is one, and no
// variables.
type LoadOptions struct {
	File string   // "": DefaultConfigFile where it exists; a named file must exist
	Env  []string // NAME=value as os.Environ returns them
	Set  []string // key=value of --set, the later wins
	// Warn is told of what is odd without being wrong, such as a variable that no key has. Nil: not told.
	Warn func(string)

	// What a test replaces; the zero values ask the system.
	Dir      string // working directory
	Hostname string
	UID      func() int
}

// Origins says for each key where its value comes from: "flag", "env NAME", "file PATH:LINE" or "default".
type Origins map[string]string

// EnvPrefix begins the name of every variable that sets a key.
const EnvPrefix = "NEARSIDE_"

// autoReachable is the short form of mesh.autoReachableBackends.
const autoReachable = EnvPrefix + "AUTO_REACHABLE_BACKENDS"

// otherEnv are variables of the clients, which no key has.
var otherEnv = [...]string{EnvPrefix + "SOCKET", EnvPrefix + "CONFIG"}

const maxConfigBytes = 1 << 20

// EnvName returns the variable that sets a key: "accessLog.files.maxFiles" → NEARSIDE_ACCESSLOG_FILES_MAXFILES.
func EnvName(key string) string {
	return EnvPrefix + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

// Load reads the config: a flag wins over a variable, that over the file, that over the default. A variable with an
// empty value does not count; "--set key=" sets the empty value. Relative paths lie below their entry of paths;
// paths.* and resources.dir lie below the file's directory when they stand in the file, else below the working
// directory. Without file and without root, everything lies below $XDG_RUNTIME_DIR/nearside or ./nearside-data.
//
// All faults are returned at once; then the config is not to be used.
func Load(o LoadOptions) (*Config, Origins, resource.Faults) {
	if o.Hostname == "" {
		o.Hostname, _ = os.Hostname() // nodeName has a name for none
	}
	l := loader{o: o, cfg: defaults(o.Hostname), origins: Origins{}, bases: map[string]string{}}
	l.fields = l.cfg.fields()
	for _, f := range l.fields {
		l.origins[f.path] = "default"
	}
	l.file()
	l.env()
	l.flags()
	l.resolve()
	return l.cfg, l.origins, l.faults
}

type loader struct {
	o       LoadOptions
	cfg     *Config
	fields  []field // of cfg
	origins Origins
	bases   map[string]string // key → directory that a relative path lies below
	faults  resource.Faults
}

func (l *loader) fault(file string, line int, key, reason string) {
	l.faults = append(l.faults, resource.Fault{File: file, Line: line, Field: key, Reason: reason})
}

// file reads the config file, or notes that there is none.
func (l *loader) file() {
	name, named := l.o.File, l.o.File != ""
	if !named {
		name = DefaultConfigFile
	}
	name = absolute(name, l.o.Dir)
	data, err := readConfig(name)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !named:
		l.noFile()
		return
	case err != nil:
		l.fault(name, 0, "", fmt.Sprintf("the config file cannot be read: %v", err))
		return
	}
	root, err := parseDocument(data)
	if err != nil {
		l.fault(name, 0, "", err.Error())
		return
	}
	if root != nil {
		l.mapping(name, "", root)
	}
}

// noFile moves the defaults to where a user may write.
func (l *loader) noFile() {
	uid := os.Geteuid
	if l.o.UID != nil {
		uid = l.o.UID
	}
	if uid() == 0 {
		return
	}
	runtimeDir, _ := lookupEnv(l.o.Env, "XDG_RUNTIME_DIR")
	l.cfg.unprivileged(unprivilegedBase(runtimeDir, workDir(l.o.Dir)))
}

// mapping takes over one mapping of the file; prefix is "" or ends with a dot.
func (l *loader) mapping(file, prefix string, n *yaml.Node) {
	n = follow(n)
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" {
		return // a section whose keys are all commented out
	}
	if n.Kind != yaml.MappingNode {
		l.fault(file, n.Line, strings.TrimSuffix(prefix, "."), "is not a mapping of keys")
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], follow(n.Content[i+1])
		key := prefix + clip.Value(k.Value)
		if seen[key] {
			l.fault(file, k.Line, key, "stands twice; keep one")
			continue
		}
		seen[key] = true
		switch f := findField(l.fields, key); {
		case f != nil:
			l.set(f, v, file, filepath.Dir(file), fmt.Sprintf("file %s:%d", file, k.Line))
		case isSection(l.fields, key):
			l.mapping(file, key+".", v)
		default:
			l.fault(file, k.Line, key, "is not a key of the config"+suggest(key, l.fields))
		}
	}
}

// env takes over the variables.
func (l *loader) env() {
	byName := make(map[string]*field, len(l.fields)+1)
	for i := range l.fields {
		byName[EnvName(l.fields[i].path)] = &l.fields[i]
	}
	for _, kv := range l.o.Env {
		name, v, _ := strings.Cut(kv, "=")
		if v == "" || !strings.HasPrefix(name, EnvPrefix) {
			continue
		}
		f := byName[name]
		if name == autoReachable {
			f = byName[EnvName("mesh.autoReachableBackends")]
			if full, ok := lookupEnv(l.o.Env, EnvName(f.path)); ok && full != "" {
				continue // the full name wins over the short one, wherever it stands
			}
		}
		if f == nil {
			l.unknownEnv(name)
			continue
		}
		l.set(f, &yaml.Node{Kind: yaml.ScalarNode, Value: v}, "env "+name, workDir(l.o.Dir), "env "+name)
	}
}

func (l *loader) unknownEnv(name string) {
	for _, o := range otherEnv {
		if name == o {
			return
		}
	}
	if l.o.Warn != nil {
		l.o.Warn(fmt.Sprintf("the variable %s sets no key of the config; \"nearside config schema\" lists the keys", clip.Value(name)))
	}
}

// flags takes over --set.
func (l *loader) flags() {
	for _, kv := range l.o.Set {
		key, v, ok := strings.Cut(kv, "=")
		if !ok {
			l.fault("--set", 0, clip.Value(kv), "has no value; write key=value, as in node.zone=east")
			continue
		}
		f := findField(l.fields, key)
		if f == nil {
			l.fault("--set", 0, clip.Value(key), "is not a key of the config"+suggest(key, l.fields))
			continue
		}
		l.set(f, &yaml.Node{Kind: yaml.ScalarNode, Value: v}, "--set", workDir(l.o.Dir), "flag")
	}
}

func (l *loader) set(f *field, n *yaml.Node, file, base, origin string) {
	ps := f.value.parse(n)
	for _, p := range ps {
		l.fault(file, p.line, f.path+p.at, p.reason)
	}
	if ps == nil {
		l.origins[f.path], l.bases[f.path] = origin, base
	}
}

// resolve makes all paths absolute and checks what depends on several keys.
func (l *loader) resolve() {
	for _, f := range l.fields {
		if t, ok := f.value.(pathText); ok {
			base := l.bases[f.path]
			if base == "" {
				base = workDir(l.o.Dir)
			}
			t.resolve(base)
		}
	}
	for i := range l.cfg.AccessLog.Receivers {
		for _, f := range l.cfg.AccessLog.Receivers[i].fields(&l.cfg.Paths.Logs) {
			if t, ok := f.value.(pathText); ok {
				t.resolve("")
			}
		}
	}
	l.faults = append(l.faults, l.cfg.Validate()...)
}

// absolute makes a file name absolute.
func absolute(name, dir string) string {
	if filepath.IsAbs(name) {
		return filepath.Clean(name)
	}
	return filepath.Join(workDir(dir), name)
}

// readConfig reads a regular file of bounded size.
func readConfig(name string) ([]byte, error) {
	f, err := files.OpenRegular(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxConfigBytes+1))
	if err == nil && len(data) > maxConfigBytes {
		err = fmt.Errorf("it has more than %d bytes", maxConfigBytes)
	}
	return data, err
}

// parseDocument reads one YAML document; nil for an empty one.
func parseDocument(data []byte) (n *yaml.Node, err error) {
	defer func() { // the library panics on some input that it does not expect
		if p := recover(); p != nil {
			n, err = nil, fmt.Errorf("not valid YAML: %v", p)
		}
	}()
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc, more yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("not valid YAML: %s", strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if err := dec.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, errors.New("it holds more than one YAML document; the config is a single one")
	}
	if len(doc.Content) == 0 {
		return nil, nil
	}
	return follow(doc.Content[0]), nil
}

// follow returns what an alias stands for. Aliases do not chain, and the walk is as deep as the keys are.
func follow(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

func lookupEnv(env []string, name string) (string, bool) {
	for i := len(env) - 1; i >= 0; i-- {
		if n, v, _ := strings.Cut(env[i], "="); n == name {
			return v, true
		}
	}
	return "", false
}
