// Package traffic has the commands that read logs: the lines themselves, and policies that are
// proposed by them.
package traffic

import (
	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
)

// Commands are the commands that read logs.
func Commands(env *command.Env) []*cobra.Command {
	return []*cobra.Command{logsCommand(env), passthroughCommand(env), reachableCommand(env)}
}
