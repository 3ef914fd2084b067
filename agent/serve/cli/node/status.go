// Package node implements the commands for the agent and its node: health, config, DNS,
// interception, keys, tokens, and the gossip pool.
package node

import (
	"errors"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
	"github.com/nearside-mesh/nearside/agent/serve/client"
)

func statusCommand(env *command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the health of the agent on one screen",
		Long: `Shows the stored resources, the sync status of the proxies, and the problems.

Each problem has its class, and the first command to run follows it. Failed and degraded checks,
faults of files, and errors and warnings of resources and proxies are problems.

The exit code is 2 if the agent is not ready. With --exit-code, it is also 2 if a problem has the
severity error.`,
		Example: "  nearside status\n  nearside status -o json | jq .problems",
	}
	var strict bool
	cmd.Flags().BoolVar(&strict, "exit-code", false,
		"also exit with 2 if a ready agent has errors")
	return command.Asking(env, cmd, command.AsText, text.Status, command.Call(env, (*client.Client).Status),
		func(s *api.Status) bool { return !s.Ready || strict && text.HasErrors(s) })
}

func healthcheckCommand(env *command.Env) *cobra.Command {
	var timeout time.Duration
	var live bool
	cmd := &cobra.Command{
		Use:   "healthcheck",
		Short: "Exit with 0 if the agent is ready, else with 1",
		Long: `This command is for probes of containers and service managers. The exit code is 0 if the agent is
ready, and 1 if it is not ready, does not respond in time, or does not run. Standard error has the
reason. --live only tests whether the agent works at all, for liveness probes: an agent that is not
ready may become ready, and a restart would not help.`,
		Example: "  nearside healthcheck --timeout 2s\n  nearside healthcheck --live",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if timeout <= 0 {
				return command.Usagef("--timeout %s is invalid; give a duration above 0", timeout)
			}
			ask, not := env.Quick(timeout).Ready, "ready"
			if live {
				ask, not = env.Quick(timeout).Live, "live"
			}
			h, err := ask(cmd.Context())
			if err != nil {
				return errors.New(err.Error()) // drops the type, so that every failure exits with 1
			}
			failed := slices.DeleteFunc(h.Checks, func(c api.Check) bool { return c.OK })
			if h.Status == "ok" && len(failed) == 0 {
				return nil
			}
			for _, c := range failed {
				text.Printf(env.Stderr, "not %s: %s: %s\n", not, c.Name, c.Reason)
			}
			return command.Silent(command.ExitFailed)
		},
	}
	cmd.Flags().DurationVar(&timeout, "timeout", 5*time.Second, "time to wait for the answer")
	cmd.Flags().BoolVar(&live, "live", false, "test liveness instead of readiness")
	return cmd
}

// Commands returns the commands for the agent and its node.
func Commands(env *command.Env) []*cobra.Command {
	return []*cobra.Command{runCommand(env), checkConfigCommand(env), configCommand(env), dnsCommand(env),
		accessCommand(env),
		tokenCommand(env), interceptCommand(env), holdCommand(env), statusCommand(env), healthcheckCommand(env),
		checkCommand(env),
		membersCommand(env), joinCommand(env), leaveCommand(env), forgetCommand(env), keyringCommand(env), debugCommand(env)}
}
