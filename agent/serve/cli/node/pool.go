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
		Short: "Contact members of the gossip pool at addresses",
		Long: `Makes the agent contact members of the gossip pool at these addresses, in addition to gossip.join.
One reachable member is enough: it announces all others, and the agent remembers them across
restarts.

The exit code is 1 if no member responds.`,
		Example: "  nearside join 10.0.0.7:7946\n  nearside join mesh-a.example.com:7946 mesh-b.example.com:7946 -o json",
		Args:    command.Args(1, 64, "1 to 64 addresses"),
	}
	format := command.OutputFlag(cmd, "text", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		for _, x := range args {
			if _, _, err := net.SplitHostPort(x); err != nil {
				return command.Usagef("%q is not HOST:PORT; give the address of gossip.bind, such as 10.0.0.7:7946", x)
			}
		}
		got, err := env.Client().Join(cmd.Context(), args)
		err = command.Show(env, *format, text.JoinedList)(got, err)
		if err == nil && !slices.ContainsFunc(got.Items, func(x api.Joined) bool { return x.Reached }) {
			err = command.Exit(command.ExitFailed, command.Hinted(fmt.Errorf("no member responded"),
				"check the network, gossip.cluster, and the keys (nearside keyring list) on both nodes"))
		}
		return err
	}
	return cmd
}

func leaveCommand(env *command.Env) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "leave --yes",
		Short: "Leave the gossip pool permanently",
		Long: `Announces to the pool that this node leaves permanently. Other nodes stop using its dataplanes at
once, without waiting for it. The agent keeps serving its Envoys until it is stopped. After a
restart, it rejoins the pool.

Use this command when you decommission a node. A restart does not need it.`,
		Example: "  nearside leave --yes && systemctl disable --now nearside",
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "confirm (required)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if !yes {
			return command.Usagef("--yes is required: other nodes stop using the dataplanes of this node at once")
		}
		if err := env.Client().Leave(cmd.Context()); err != nil {
			return err
		}
		text.Println(env.Stdout, "this node has left the pool; the agent runs without the pool until it is stopped")
		return nil
	}
	return cmd
}

func forgetCommand(env *command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "forget NODE",
		Short: "Remove what a dead node owns from the pool",
		Long: `Removes the dataplanes of a dead node, and the trust in its certificate authority, on all members.
Use it for nodes that will not return. NODE is a name, or an id from "nearside members -o json".
Without this command, the pool forgets a dead node after 24 hours. Until then, its name belongs to
its key: a node with another key can use it only after this command. A node that returns is an
ordinary member again.`,
		Example: "  nearside forget node-7",
		Args:    command.Args(1, 1, "NODE"),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := env.Client().Forget(cmd.Context(), args[0]); err != nil {
			return err
		}
		text.Println(env.Stdout, args[0]+" was removed from the pool")
		return nil
	}
	return cmd
}

func membersCommand(env *command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "members",
		Short: "List the nodes of the gossip pool",
		Long: `Lists the nodes of the gossip pool as this node's agent sees them. STATE is alive, dead, left
(the node announced that it leaves), or refused (this node does not use it), and SINCE is the age of
this state. Nodes with the same
REVISION have the same resources. IN-SYNC is yes if the node has the resources of this node: the
agent asks each live node whose last known revision differs. CLOCK is how far the node's clock is
ahead of this one.

FILES compares the resources in files, which are not replicated, except Dataplanes and other
resources that belong to a node. -o json names the first 20 differences of each node. -o wide adds
KEY, the fingerprint of the node's key, which nodes of earlier releases do not have, and REASON, why
a node is refused.

The exit code is 1 if gossip.bind is empty, so that the agent is in no pool.`,
		Example: "  nearside members\n  nearside members -o json | jq -r '.items[] | select(.state == \"dead\") | .name'\n" +
			"  nearside members -o json | jq '.items[] | {name, files}'",
	}
	format := command.OutputFlag(cmd, "table", "wide", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		got, err := env.Client().Members(cmd.Context())
		if err != nil {
			return err
		}
		if ok, err := command.Printed(env, *format, got); ok {
			return err
		}
		if len(got.Items) == 0 {
			return command.Exit(command.ExitFailed, command.Hinted(fmt.Errorf("this agent is not in a pool"),
				"to join a pool, set gossip.bind, gossip.join, and gossip.keyringFile"))
		}
		text.Members(env.Stdout, got, *format == "wide")
		return nil
	}
	return cmd
}
