package trustcmd

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/base/plural"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/trust"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
	"github.com/nearside-mesh/nearside/gossip/engine"
	"github.com/nearside-mesh/nearside/gossip/engine/sign"
)

// poolCommand returns the commands that repair a pool.
func poolCommand(env *command.Env) *cobra.Command {
	return command.Parent(&cobra.Command{
		Use:     "pool",
		Short:   "Repair the gossip pool",
		Long:    `Repairs a pool whose nodes cannot agree, or which a hostile member has damaged.`,
		Example: "  nearside pool heal --dry-run\n  nearside pool heal --evict node-7",
	}, healCommand(env))
}

func healCommand(env *command.Env) *cobra.Command {
	var q api.PoolHeal
	var root string
	cmd := &cobra.Command{
		Use:   "heal",
		Short: "Begin an era that outranks every date in the pool",
		Long: `Begins the next era of the pool on all nodes. A version of an era outranks every version of earlier
eras, whatever their dates. Void versions are dropped on all nodes, and refused for ever:

  - versions of earlier eras that are dated more than 10 seconds after the heal
  - all data of nodes and keys that --evict names, by name or ID
  - with --purge-unknown, records of kinds that this agent does not know

A node that was not reachable loses the changes that it accepts after this command until it hears of
the era. The command restores the last valid version of each resource from the history of this node,
so run it on a node that was a member before the damage, with a correct clock.

Where trust is on, a root key must sign the heal: give --sign. The agent restores resources with the
key of its node. Resources that this node may not write must be applied again with apply --sign.

The exit code is 2 if a resource could not be restored.`,
		Example: "  nearside pool heal --dry-run\n  nearside pool heal --evict node-7 --purge-unknown\n" +
			"  nearside pool heal --evict node-7 --sign /media/usb/root.key",
		Args: command.Args(0, 0, "no arguments: nodes and keys are given with --evict"),
	}
	cmd.Flags().StringArrayVar(&q.Evict, "evict", nil, "name of a node, or ID of a node or key, to evict (repeatable)")
	cmd.Flags().BoolVar(&q.PurgeUnknown, "purge-unknown", false, "drop records of kinds that this agent does not know")
	cmd.Flags().BoolVar(&q.DryRun, "dry-run", false, "only list what would be void and restored")
	cmd.Flags().StringVar(&root, "sign", "", "file of the root key that signs, or ssh-agent:COMMENT")
	format := command.OutputFlag(cmd, "text", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx, c := cmd.Context(), env.Client()
		plan := q
		plan.DryRun = q.DryRun || root != ""
		got, err := c.Heal(ctx, plan)
		if err != nil {
			return err
		}
		for _, name := range got.Older {
			text.Printf(env.Stderr, "warning: node %s does not know eras and keeps void versions; upgrade its agent\n", name)
		}
		if root != "" && !q.DryRun {
			key, err := open(env, root)
			if err != nil {
				return err
			}
			defer key.Close()
			text.Printf(env.Stderr, "signing the heal of era %d with key %s\n", got.Era, sign.Fingerprint(key.Public()))
			put := engine.Put{Key: engine.Key{Kind: trust.KindHeal, Name: trust.HealName(got.Era)},
				Body: []byte(got.Statement), MediaType: "application/json"}
			if _, err := c.WriteSigned(ctx, key, put); err != nil {
				return err
			}
			owners, older := got.Owners, got.Older
			if got, err = c.Heal(ctx, api.PoolHeal{Era: got.Era}); err != nil {
				return err
			}
			got.Owners, got.Older = owners, older
		}
		if err := command.Show(env, *format, healed)(got, nil); err != nil {
			return err
		}
		if failed := failures(got); failed > 0 {
			return command.Exit(command.ExitNo, command.Hinted(fmt.Errorf("%s could not be restored",
				plural.Count(failed, "resource")), "apply them again; with trust.mode enforce, sign them with apply --sign"))
		}
		return nil
	}
	return cmd
}

func failures(x *api.PoolHealed) (n int) {
	for _, v := range x.Items {
		if v.Result == api.VoidFailed {
			n++
		}
	}
	return n
}

// healed writes the effect of a heal.
func healed(w io.Writer, x *api.PoolHealed) {
	verb := map[bool]string{true: "would begin", false: "has begun"}[x.DryRun]
	text.Printf(w, "era %d %s\n", x.Era, verb)
	if len(x.Owners) > 0 {
		text.Printf(w, "evicted, with their items: %s\n", strings.Join(x.Owners, ", "))
	}
	if len(x.Items) == 0 {
		text.Printf(w, "no resource is void\n")
	}
	for _, v := range x.Items {
		text.Printf(w, "%s: %s%s\n", v.Key(), v.Result, because(v))
	}
}

func because(v api.PoolVoid) string {
	switch {
	case v.Reason != "":
		return ": " + v.Reason
	case v.Revision > 0:
		return fmt.Sprintf(" from revision %d", v.Revision)
	}
	return ""
}
