// Package resources has the commands about resources: what there is, what a change does, and
// whether proxies have applied it.
package resources

import (
	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
)

// Commands are the commands about resources.
func Commands(env *command.Env) []*cobra.Command {
	return []*cobra.Command{validateCommand(env), applyCommand(env), deleteCommand(env), getCommand(env),
		apiResourcesCommand(env), schemaCommand(env), editCommand(env), diffCommand(env), migrateCommand(env),
		historyCommand(env), rollbackCommand(env), conflictsCommand(env), waitCommand(env)}
}
