package node

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
)

func membersCommand(env *command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "members",
		Short: "List the nodes of the gossip pool",
		Long: `Lists the nodes of the gossip pool as the agent of this node sees them. STATE is alive, dead or left (it has said that it
goes). REVISION names what the node had when it was asked last, which happens every few seconds: nodes with the same one have the
same. IN-SYNC is yes where that is what this node has. CLOCK is how far its clock is ahead of the one here.

The exit code is 1 where the agent stands alone, since gossip.bind is empty.`,
		Example: "  nearside members\n  nearside members -o json | jq -r '.items[] | select(.state != \"alive\") | .name'",
		Args:    command.Args(0, 0, "no arguments"),
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
		t := text.NewTable(env.Stdout, "NAME", "STATE", "ZONE", "VERSION", "ADDRESS", "REVISION", "IN-SYNC", "CLOCK")
		for i := range got.Items {
			m := &got.Items[i]
			name, sync := m.Name, "no"
			if m.Self {
				name += " (this node)"
			}
			switch {
			case m.InSync:
				sync = "yes"
			case m.Lag >= 1:
				sync = "for " + time.Duration(m.Lag*float64(time.Second)).Round(time.Second).String() + " not"
			}
			state := m.State
			if m.AgentLost {
				state += " (its dataplanes answer)"
			}
			t.Row(name, state, m.Zone, m.Version, m.Address, m.Revision, sync,
				time.Duration(m.Ahead*float64(time.Second)).Round(time.Millisecond).String())
		}
		return t.Flush()
	}
	return cmd
}
