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
		Long: `Shows the stored resources, the sync status of the proxies and the problems. Exit code 2 when it is not ready; with --exit-code
also when something is wrong: a check that has failed, a fault or conflict in a resource file, a resource that cannot be read, or a problem that is
an error. What is only warned of does not count.`,
		Example: "  nearside status\n  nearside status --exit-code >/dev/null || nearside status -o json | jq .problems",
	}
	var strict bool
	cmd.Flags().BoolVar(&strict, "exit-code", false,
		"exit code 2 also when something is wrong with an agent that is ready")
	return command.Asking(env, cmd, command.AsText, text.Status, command.Call(env, (*client.Client).Status),
		func(s *api.Status) bool { return !s.Ready || strict && text.HasErrors(s) })
}

func healthcheckCommand(env *command.Env) *cobra.Command {
	var timeout time.Duration
	var live bool
	cmd := &cobra.Command{
		Use:   "healthcheck",
		Short: "Exit 0 when the agent is ready, else 1",
		Long: `For probes of containers and service managers: exit code 0 when the agent is ready and 1 when it is not, does not
answer in time or is not there. The reason is on standard error. --live asks whether it works at all, for liveness probes: an agent
that is not ready may become so by itself, and a restart would not help it.`,
		Example: "  nearside healthcheck --timeout 2s\n  nearside healthcheck --live",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if timeout <= 0 {
				return command.Usagef("--timeout %s is not possible; give a duration above 0", timeout)
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
	cmd.Flags().DurationVar(&timeout, "timeout", 5*time.Second, "how long to wait for the answer")
	cmd.Flags().BoolVar(&live, "live", false, "ask whether the agent works at all instead of whether it is ready")
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
