package command

import (
	"strings"

	"github.com/nearside-mesh/nearside/agent/answer/offline"
	"github.com/nearside-mesh/nearside/agent/base/jsonpath"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
)

// Answer asks the agent, or where -f names files computes the same from these alone, and prints the
// warnings.
func Answer[T any](env *Env, f *FileFlags, online func() (T, error),
	compute func(o *offline.Offline, zone string) (T, []string, error)) (T, error) {
	if len(f.Paths) == 0 {
		return online()
	}
	o, err := Offline(env, f)
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

// Printed writes a document where the format is one for programs; else it reports false.
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

// Show returns a function that prints an answer: as JSON or YAML, or in any other format by text.
// Where negative, which may be nil, says so, the exit code is that of a negative result.
func Show[T any](env *Env, format string, content func(T) error, negative func(T) bool) func(T, error) error {
	return func(v T, err error) error {
		if err != nil {
			return err
		}
		ok, err := Printed(env, format, v)
		if !ok {
			err = content(v)
		}
		if err == nil && negative != nil && negative(v) {
			err = Silent(ExitNo)
		}
		return err
	}
}
