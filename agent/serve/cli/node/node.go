// Package node has the commands about the agent and its node: health, config, DNS, interception,
// keys, tokens and the gossip pool.
package node

import (
	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
)

// Commands are the commands about the agent and its node.
func Commands(env *command.Env) []*cobra.Command {
	return []*cobra.Command{runCommand(env), checkConfigCommand(env), configCommand(env), dnsCommand(env),
		accessCommand(env),
		tokenCommand(env), interceptCommand(env), holdCommand(env), statusCommand(env), healthcheckCommand(env),
		checkCommand(env),
		membersCommand(env), joinCommand(env), leaveCommand(env), forgetCommand(env), keyringCommand(env), debugCommand(env)}
}
