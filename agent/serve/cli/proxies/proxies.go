// Package proxies has the commands about proxies: their bootstrap, their config with its reasons,
// and what becomes of a connection.
package proxies

import (
	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
)

// Commands are the commands about proxies and their config.
func Commands(env *command.Env) []*cobra.Command {
	return []*cobra.Command{bootstrapCommand(env), inspectCommand(env), explainCommand(env), proxyCommand(env)}
}
