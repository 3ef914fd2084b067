package command

import (
	"context"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/answer/offline"
	"github.com/nearside-mesh/nearside/agent/base/jsonpath"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
	"github.com/nearside-mesh/nearside/agent/serve/client"
)

// Answer asks the agent, or computes the answer offline if -f is given, and prints the warnings.
func Answer[T any](env *Env, f *FileFlags, online func() (T, error),
	compute func(o *offline.Offline, zone string) (T, []string, error)) (T, error) {
	if len(f.Paths) == 0 {
		if err := f.Online(); err != nil {
			var none T
			return none, err
		}
		return online()
	}
	o, err := Offline(env, f)
	if err == nil && o.Len() == 0 {
		err = ErrNothing
	}
	if err != nil {
		var none T
		return none, err
	}
	v, warnings, err := compute(o, env.Getenv("NEARSIDE_NODE_ZONE"))
	if err == nil {
		env.Warn(warnings)
	}
	return v, err
}

// Explain asks the agent a question, or answers it offline if -f is given.
func Explain[Q, T any](ctx context.Context, env *Env, f *FileFlags, q Q,
	online func(*client.Client, context.Context, Q) (T, error),
	compute func(*offline.Offline, string, Q) (T, error)) (T, error) {
	return Answer(env, f, func() (T, error) { return online(env.Client(), ctx, q) },
		func(o *offline.Offline, zone string) (T, []string, error) {
			v, err := compute(o, zone, q)
			return v, nil, err
		})
}

// Printed writes a document if the format is one for programs, and otherwise returns false.
func Printed(env *Env, format string, v any) (bool, error) {
	switch format {
	case "json":
		return true, text.JSON(env.Stdout, v)
	case "yaml":
		return true, text.YAML(env.Stdout, v)
	}
	if path, ok := strings.CutPrefix(format, JsonPath); ok {
		t, err := jsonpath.Parse(path)
		if err != nil {
			return true, err
		}
		return true, t.Print(env.Stdout, v)
	}
	return false, nil
}

// Show returns a function that prints an answer as JSON or YAML, or with print in any other format.
// If one of negative returns true, the exit code is [ExitNo].
func Show[T any](env *Env, format string, print func(io.Writer, T), negative ...func(T) bool) func(T, error) error {
	return func(v T, err error) error {
		if err != nil {
			return err
		}
		ok, err := Printed(env, format, v)
		if !ok {
			print(env.Stdout, v)
		}
		if err == nil && slices.ContainsFunc(negative, func(is func(T) bool) bool { return is(v) }) {
			err = Silent(ExitNo)
		}
		return err
	}
}

// Asking completes a command that prints one answer, in the formats of [OutputFlag].
func Asking[T any](env *Env, cmd *cobra.Command, formats []string, print func(io.Writer, T),
	ask func(ctx context.Context, args []string) (T, error), negative ...func(T) bool) *cobra.Command {
	format := OutputFlag(cmd, formats...)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return Show(env, *format, print, negative...)(ask(cmd.Context(), args))
	}
	return cmd
}

// Call adapts a method of the client for [Asking].
func Call[T any](env *Env, method func(*client.Client, context.Context) (T, error)) func(context.Context,
	[]string) (T, error) {
	return func(ctx context.Context, _ []string) (T, error) { return method(env.Client(), ctx) }
}

// PrintedNames writes the name of each item if the format is "name", and otherwise returns false.
func PrintedNames[T any](env *Env, format string, list []T, name func(T) string) bool {
	if format != "name" {
		return false
	}
	for _, x := range list {
		text.Println(env.Stdout, name(x))
	}
	return true
}
