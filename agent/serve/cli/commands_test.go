package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
)

// Every command has a help with an example, and refuses arguments that it does not know.
func TestEveryCommandHelps(t *testing.T) {
	eachCommand(func(cmd *cobra.Command, path []string) {
		help := helpOf(t, path, 100)
		for _, want := range []string{"Examples:\n", "Usage:\n"} {
			if !strings.Contains(help, want) {
				t.Errorf("%v --help has no %q", path, want)
			}
		}
		if cmd.Args == nil {
			t.Errorf("%v does not check its arguments", path)
		}
		var out, errs bytes.Buffer
		if code := Main(command.Program{}, append(path, "a", "b", "c", "d"), nil, &out, &errs,
			nil); code != command.ExitUsage {
			t.Errorf("%v with four arguments: exit code %d, want %d", path, code, command.ExitUsage)
		}
		if !strings.Contains(errs.String(), "hint: see "+cmd.CommandPath()+" --help") {
			t.Errorf("%v: a wrong command line gets no hint: %s", path, errs.String())
		}
	})
}
