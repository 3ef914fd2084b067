// Package command is what commands are built from: their environment, flags, files, references to
// resources, completion, output formats, and errors with exit codes.
package command

import (
	"context"
	"io"
	"os"
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
