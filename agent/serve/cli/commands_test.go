package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
)

// Every command explains itself with an example, refuses arguments it does not know, and is in its
// parent's help.
func TestEveryCommandHelps(t *testing.T) {
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		path := strings.Fields(cmd.CommandPath())[1:]
		var out, errs bytes.Buffer
		if code := Main(command.Program{}, append(path, "--help"), nil, &out, &errs, nil); code != command.ExitOK ||
			errs.Len() > 0 {
			t.Errorf("%v --help: exit code %d, %s", path, code, errs.String())
		}
		for _, want := range []string{"Examples:\n", "Usage:\n"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%v --help has no %q", path, want)
			}
		}
		if cmd.Args == nil {
			t.Errorf("%v does not check its arguments", path)
		}
		errs.Reset()
		if code := Main(command.Program{}, append(path, "a", "b", "c", "d"), nil, &out, &errs,
			nil); code != command.ExitUsage {
			t.Errorf("%v with four arguments: exit code %d, want %d", path, code, command.ExitUsage)
		}
		if !strings.Contains(errs.String(), "hint: see "+cmd.CommandPath()+" --help") {
			t.Errorf("%v: a wrong command line gets no hint: %s", path, errs.String())
		}
		for _, c := range cmd.Commands() {
			if !c.Hidden && c.Name() != "help" {
				walk(c)
			}
		}
	}
	env := &command.Env{}
	walk(Root(env))
}
