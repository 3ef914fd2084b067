// Package command is what commands are built from: their environment, flags, files, references to
// resources, completion, output formats, and errors with exit codes.
package command

import (
	"context"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/agent/answer/offline"
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

// Program is what commands need of the program that they are part of.
type Program struct {
	Version     string // as the linker has set it; "" without
	CheckConfig func(*config.Config) resource.Faults
	// RunAgent runs the agent with a config, until ctx ends. On SIGHUP the agent reads the config
	// again.
	RunAgent func(ctx context.Context, env *Env, cfg *config.Config, reload config.LoadOptions) error
}

// Env is what a command works with.
type Env struct {
	Program        Program
	Invoke         func(args []string, out io.Writer) // runs another command line, whose output goes to out
	Stdin          io.Reader
	Stdout, Stderr io.Writer  // text for people; see [text.Writer]
	ToTerminal     bool       // Stdout is one
	Terminal       io.Writer  // where progress is shown: Stderr where that is a terminal, else nil
	Vars           []string   // the environment
	Socket         string     // --socket
	Mesh           string     // --mesh
	Named          *Reference // what the command line names; nil: nothing
}

// Getenv returns a variable of the invocation, the last of its name.
func (env *Env) Getenv(name string) string {
	for i := len(env.Vars) - 1; i >= 0; i-- {
		if v, ok := strings.CutPrefix(env.Vars[i], name+"="); ok {
			return v
		}
	}
	return ""
}

// Colors says whether the environment wants colours on a terminal (https://no-color.org).
func (env *Env) Colors() bool { return env.Getenv("NO_COLOR") == "" && env.Getenv("TERM") != "dumb" }

// Client returns a client of the agent. It connects at the first call.
func (env *Env) Client() *client.Client {
	return client.New(client.FindSocket(env.Socket, env.Getenv, os.Geteuid()), 0)
}

// Quick is a client for completion and probes, which must not keep anyone waiting.
func (env *Env) Quick(timeout time.Duration) *client.Client {
	return client.New(client.FindSocket(env.Socket, env.Getenv, os.Geteuid()), timeout)
}

// BuildInfo is the document of version -o json.
type BuildInfo struct {
	Product  string `json:"product"`
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"` // of the sources
	Modified bool   `json:"modified,omitempty"` // the sources had changes that were not committed
	Schema   string `json:"schema"`             // the newest version of Kuma whose documents are known
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// Build says what was built: by the linker's word, else by what the Go command has recorded.
func (env *Env) Build() BuildInfo {
	b := BuildInfo{Product: "nearside", Version: env.Program.Version, Schema: offline.SchemaVersion, Go: runtime.Version(),
		Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		if v := info.Main.Version; b.Version == "" && v != "(devel)" {
			b.Version = v
		}
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				b.Revision = s.Value
			case "vcs.modified":
				b.Modified = s.Value == "true"
			}
		}
	}
	if b.Version == "" {
		b.Version = "dev"
	}
	return b
}

// Progress shows on a terminal how far something is, until done is called. Elsewhere it shows
// nothing.
func Progress(env *Env, what string) (told func(n, all int), done func()) {
	if env.Terminal == nil {
		return nil, func() {}
	}
	return text.Progress(env.Terminal, what, time.Now)
}

// Long calls the agent with a client that shows what it waits for.
func Long[T any](env *Env, call func(*client.Client) (T, error)) (T, error) {
	c := env.Client()
	told, done := Progress(env, "looking at what changes on proxies")
	defer done()
	c.Progress = told
	return call(c)
}
