// Package cli implements the command line. Commands print data to standard output and everything
// else to standard error. The documents that -o json prints are those of the HTTP API: releases add
// fields to them, and never rename or remove any.
package cli

import (
	"context"
	"errors"
	"io"
	"strings"

	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
)

// Main runs one command line and returns its exit code.
func Main(p command.Program, args []string, stdin io.Reader, stdout, stderr io.Writer, vars []string) int {
	out := &text.CheckedWriter{W: stdout}
	env := &command.Env{Program: p, Stdin: stdin, Vars: vars}
	env.Invoke = func(args []string, out io.Writer) {
		Main(p, append(env.Arguments(), args...), strings.NewReader(""), out, out, vars)
	}
	if text.IsTerminal(stderr) {
		env.Terminal = stderr
	}
	env.ToTerminal = text.IsTerminal(stdout)
	env.Stdout = text.Writer{W: out, Color: env.ToTerminal && env.Colors()}
	env.Stderr = text.Writer{W: stderr, Color: env.Terminal != nil && env.Colors()}
	root := Root(env)
	root.SetArgs(args)
	wrapHelp(root, helpWidth(env, stdout))
	root.SetIn(stdin)
	root.SetOut(env.Stdout)
	root.SetErr(env.Stderr)
	cmd, err := root.ExecuteContextC(context.Background())
	var exit *command.ExitError
	if out.Err != nil && (err == nil || errors.As(err, &exit) && exit.Err == nil) {
		err = out.Err // truncated output is a failure
	}
	if err == nil {
		return command.ExitOK
	}
	if errors.As(err, &exit) && exit.Code == command.ExitUsage {
		exit.Command = cmd.CommandPath()
	}
	command.Report(env.Stderr, err)
	if hint := command.Nearby(env, err); hint != "" {
		text.Printf(env.Stderr, "hint: %s\n", hint)
	}
	return command.ExitCode(err)
}
