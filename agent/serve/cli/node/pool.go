package node

import (
	"fmt"
	"net"
	"slices"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
)

func joinCommand(env *command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "join HOST:PORT…",
		Short: "Have the agent try members of the gossip pool at addresses",
		Long: `Has the agent of this node try members of the gossip pool at addresses, beside those of gossip.join. One that answers is
enough: from there on all know each other, also after restarts.

The exit code is 1 where none has answered.`,
		Example: "  nearside join 10.0.0.7:7946\n  nearside join mesh-a.example.com:7946 mesh-b.example.com:7946 -o json",
		Args:    command.Args(1, 64, "1 to 64 addresses"),
	}
	format := command.OutputFlag(cmd, "text", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		for _, x := range args {
			if _, _, err := net.SplitHostPort(x); err != nil {
				return command.Usagef("%q is no host:port; give the port of gossip.bind, such as 10.0.0.7:7946", x)
			}
		}
		got, err := env.Client().Join(cmd.Context(), args)
		err = command.Show(env, *format, text.JoinedList)(got, err)
		if err == nil && !slices.ContainsFunc(got.Items, func(x api.Joined) bool { return x.Reached }) {
			err = command.Exit(command.ExitFailed, command.Hinted(fmt.Errorf("no member has answered"),
				"look at the network, gossip.cluster and the keys: nearside keyring list, on both nodes"))
		}
		return err
	}
	return cmd
}

func leaveCommand(env *command.Env) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "leave --yes",
		Short: "Leave the gossip pool for good",
		Long: `Has the agent tell the pool that its node goes for good: the others stop using its dataplanes at once, and do not wait for
it. The agent goes on alone, and serves its Envoys with what it has, until it is stopped; started again it is a member again.

It is for a node that is taken out of service. A restart needs nothing of the kind.`,
		Example: "  nearside leave --yes && systemctl disable --now nearside",
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "say that you mean it (required)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if !yes {
			return command.Usagef("--yes is missing: the other nodes will stop using the dataplanes of this node at once")
		}
		if err := env.Client().Leave(cmd.Context()); err != nil {
			return err
		}
		text.Println(env.Stdout, "this node has left the pool; the agent goes on alone until it is stopped")
		return nil
	}
	return cmd
}

func forgetCommand(env *command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "forget NODE",
		Short: "Drop what a dead node of the gossip pool owns",
		Long: `Drops what a node owns that is dead and does not come back, on all members: its dataplanes, and the trust in its certificate
authority. NODE is its name, or its id as nearside members -o json shows it. Without it that happens after 24 hours. A node that does come
back is a member like any other.`,
		Example: "  nearside forget node-7",
		Args:    command.Args(1, 1, "NODE"),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := env.Client().Forget(cmd.Context(), args[0]); err != nil {
			return err
		}
		text.Println(env.Stdout, args[0]+" is forgotten")
		return nil
	}
	return cmd
}

func membersCommand(env *command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "members",
		Short: "List the nodes of the gossip pool",
		Long: `Lists the nodes of the gossip pool as the agent of this node sees them. STATE is alive, dead or left (it has said that it
goes). REVISION names what the node had when it was asked last, which happens every few seconds: nodes with the same one have the
same. IN-SYNC is yes where that is what this node has. CLOCK is how far its clock is ahead of the one here.

The exit code is 1 where the agent stands alone, since gossip.bind is empty.`,
		Example: "  nearside members\n  nearside members -o json | jq -r '.items[] | select(.state != \"alive\") | .name'",
	}
	format := command.OutputFlag(cmd, "table", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		got, err := env.Client().Members(cmd.Context())
		if err != nil {
			return err
		}
		if ok, err := command.Printed(env, *format, got); ok {
			return err
		}
		if len(got.Items) == 0 {
			return command.Exit(command.ExitFailed, command.Hinted(fmt.Errorf("this agent stands alone"),
				"set gossip.bind, gossip.join and gossip.keyringFile to make it a member of a pool"))
		}
		text.Members(env.Stdout, got)
		return nil
	}
	return cmd
}
