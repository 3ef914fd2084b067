// Package command provides the building blocks of commands: environment, flags, files, references
// to resources, completion, output formats, and errors with exit codes.
package command

import (
	"cmp"
	"context"
	"io"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/agent/host/config"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
	"github.com/nearside-mesh/nearside/agent/serve/client"
)

// Warn writes warnings to standard error.
func (env *Env) Warn(warnings []string) {
	for _, w := range warnings {
		text.Println(env.Stderr, "warning: "+w)
	}
}

// Program is the program that the commands belong to.
type Program struct {
	Version     string
	CheckConfig func(*config.Config) resource.Faults
	// RunAgent runs the agent until ctx ends. The agent reloads its config on SIGHUP.
	RunAgent func(ctx context.Context, env *Env, cfg *config.Config, o RunOptions) error
	// RunFiles runs an agent on files, without proxies and network listeners, and calls use with the
	// socket of its API. It returns the result of use when the agent has ended.
	RunFiles func(ctx context.Context, env *Env, o FilesOptions, use func(ctx context.Context, socket string) error) error
}

// RunOptions are the options of a running agent beside its config.
type RunOptions struct {
	Reload config.LoadOptions
	Await  bool // wait until another agent with the same paths has ended, instead of failing
}

// FilesOptions configures an agent on files.
type FilesOptions struct {
	Dirs []string // of resource files
	Temp string   // directory for everything that the agent writes
}

// Env is the environment of a command.
type Env struct {
	Program        Program
	Invoke         func(args []string, out io.Writer) // runs another command line with its output to out
	Stdin          io.Reader
	Stdout, Stderr io.Writer // text for people; see [text.Writer]
	ToTerminal     bool      // Stdout is a terminal
	Terminal       io.Writer // for progress: Stderr if it is a terminal, else nil
	Vars           []string  // the environment
	Agent          AgentFlags
	Mesh           string     // --mesh, or the mesh that [SelectMesh] or a name has selected
	Named          *Reference // resource on the command line, or nil

	meshBy        string // name that has selected the mesh, or ""
	meshDefaulted bool   // the mesh is a default, which a name overrides
}

// Getenv returns the last value of a variable.
func (env *Env) Getenv(name string) string {
	for i := len(env.Vars) - 1; i >= 0; i-- {
		if v, ok := strings.CutPrefix(env.Vars[i], name+"="); ok {
			return v
		}
	}
	return ""
}

// Colors reports whether the environment allows colors (https://no-color.org).
func (env *Env) Colors() bool { return env.Getenv("NO_COLOR") == "" && env.Getenv("TERM") != "dumb" }

// BuildInfo is the document of "version -o json".
type BuildInfo struct {
	Product  string `json:"product"`
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"` // commit
	Modified bool   `json:"modified,omitempty"` // built with uncommitted changes
	Schema   string `json:"schema"`             // newest supported version of Kuma's resources
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// Build returns the version, and the commit that the Go command recorded.
func (env *Env) Build() BuildInfo {
	b := BuildInfo{Product: "nearside", Version: cmp.Or(env.Program.Version, "dev"), Schema: resource.SchemaVersion,
		Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				b.Revision = s.Value
			case "vcs.modified":
				b.Modified = s.Value == "true"
			}
		}
	}
	return b
}

// Progress shows progress on a terminal until done is called. Without a terminal, update is nil.
func Progress(env *Env, what string) (update func(n, all int), done func()) {
	if env.Terminal == nil {
		return nil, func() {}
	}
	return text.Progress(env.Terminal, what, time.Now)
}

// Long calls the agent with a client that shows progress.
func Long[T any](env *Env, call func(*client.Client) (T, error)) (T, error) {
	c := env.Client()
	update, done := Progress(env, "computing the changes on proxies")
	defer done()
	c.Progress = update
	return call(c)
}
