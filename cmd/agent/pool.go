package main

import (
	"fmt"
	"net"
	"time"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/serve/client"
)

func (a *app) joinCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "join HOST:PORT…",
		Short: "Have the agent try members of the gossip pool at addresses",
		Long: `Has the agent of this node try members of the gossip pool at addresses, beside those of gossip.join. One that answers is
enough: from there on all know each other, also after restarts.

The exit code is 1 where none has answered.`,
		Example: "  nearside join 10.0.0.7:7946\n  nearside join mesh-a.example.com:7946 mesh-b.example.com:7946 -o json",
		Args:    args(1, 64, "1 to 64 addresses"),
	}
	format := outputFlag(cmd, "text", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		for _, x := range args {
			if _, _, err := net.SplitHostPort(x); err != nil {
				return usagef("%q is no host:port; give the port of gossip.bind, such as 10.0.0.7:7946", x)
			}
		}
		got, err := a.client().Join(cmd.Context(), args)
		if err != nil {
			return err
		}
		reached := 0
		for _, x := range got.Items {
			if x.Reached {
				reached++
			}
		}
		if ok, err := a.printed(*format, got); err != nil {
			return err
		} else if !ok {
			for _, x := range got.Items {
				printLine(a.stdout, x.Address+map[bool]string{true: ": joined", false: ": no answer"}[x.Reached])
			}
		}
		if reached == 0 {
			return &exitError{err: &hintedError{fmt.Errorf("no member has answered"),
				"look at the network, gossip.cluster and the keys: nearside keyring list, on both nodes"}, code: exitFailed}
		}
		return nil
	}
	return cmd
}

func (a *app) leaveCommand() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "leave --yes",
		Short: "Leave the gossip pool for good",
		Long: `Has the agent tell the pool that its node goes for good: the others stop using its dataplanes at once, and do not wait for
it. The agent goes on alone, and serves its Envoys with what it has, until it is stopped; started again it is a member again.

It is for a node that is taken out of service. A restart needs nothing of the kind.`,
		Example: "  nearside leave --yes && systemctl disable --now nearside",
		Args:    args(0, 0, "no arguments"),
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "say that you mean it (required)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if !yes {
			return usagef("--yes is missing: the other nodes will stop using the dataplanes of this node at once")
		}
		if err := a.client().Leave(cmd.Context()); err != nil {
			return err
		}
		printLine(a.stdout, "this node has left the pool; the agent goes on alone until it is stopped")
		return nil
	}
	return cmd
}

func (a *app) forgetCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "forget NODE",
		Short: "Drop what a dead node of the gossip pool owns",
		Long: `Drops what a node owns that is dead and does not come back, on all members: its dataplanes, and the trust in its certificate
authority. NODE is its name, or its id as nearside members -o json shows it. Without it that happens after 24 hours. A node that does come
back is a member like any other.`,
		Example: "  nearside forget node-7",
		Args:    args(1, 1, "NODE"),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := a.client().Forget(cmd.Context(), args[0]); err != nil {
			return err
		}
		printLine(a.stdout, args[0]+" is forgotten")
		return nil
	}
	return cmd
}

func (a *app) conflictsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "conflicts",
		Short: "List changes that lost against others made at the same time",
		Long: `Lists versions of resources that are not in force, though nobody who knew them has replaced them. STATE is lost where two nodes
changed a resource without knowing of each other, as during a cut: the later one is in force, and this is the other one. It is limbo
where a node that was away for more than a week has a resource that may have been deleted meanwhile.

A node lists those that it had itself: ask on both sides of a cut. They are kept for seven days, and leave the list when the version is
restored, or when somebody writes the resource who has seen both.`,
		Example: "  nearside conflicts\n  nearside conflicts show 019aaf3c5a810000-1f2e3d4c\n" +
			"  nearside conflicts restore 019aaf3c5a810000-1f2e3d4c --dry-run",
		Args: args(0, 0, "no arguments"),
	}
	format := outputFlag(cmd, "table", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		got, err := a.client().Conflicts(cmd.Context())
		if err != nil {
			return err
		}
		if ok, err := a.printed(*format, got); ok {
			return err
		}
		t := newTable(a.stdout, "ID", "RESOURCE", "STATE", "WRITTEN", "ON", "WHAT")
		for i := range got.Items {
			c := &got.Items[i]
			what := "changed"
			if c.Deleted {
				what = "deleted"
			}
			t.row(c.ID, typeAndName(c.Type, c.Name)+inMesh(c.Mesh), c.State, c.Written.Format(time.RFC3339), c.Node, what)
		}
		return t.Flush()
	}
	cmd.AddCommand(a.conflictsShowCommand(), a.conflictsRestoreCommand())
	return cmd
}

func (a *app) conflictsShowCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "show ID",
		Short:   "Show a version that lost",
		Long:    "Shows the content of a version that is not in force, as nearside get shows that of the one which is.",
		Example: "  nearside conflicts show 019aaf3c5a810000-1f2e3d4c",
		Args:    args(1, 1, "ID"),
	}
	format := outputFlag(cmd, "yaml", "json")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		got, err := a.client().Conflicts(cmd.Context())
		if err != nil {
			return err
		}
		for i := range got.Items {
			c := &got.Items[i]
			switch {
			case c.ID != args[0]:
				continue
			case c.Deleted:
				return fmt.Errorf("the version is a deletion of %s", typeAndName(c.Type, c.Name)+inMesh(c.Mesh))
			case c.Resource == nil:
				return fmt.Errorf("%s", c.Reason)
			}
			_, err := a.printed(*format, c.Resource)
			return err
		}
		return fmt.Errorf("no conflict has the id %q; nearside conflicts lists them", args[0])
	}
	return cmd
}

func (a *app) conflictsRestoreCommand() *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "restore ID",
		Short: "Bring a version that lost into force",
		Long: "Writes a version that is not in force as the newest one, on all nodes. " +
			"--dry-run shows what that would change on the proxies of this node.",
		Example: "  nearside conflicts restore 019aaf3c5a810000-1f2e3d4c --dry-run\n" +
			"  nearside conflicts restore 019aaf3c5a810000-1f2e3d4c",
		Args: args(1, 1, "ID"),
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "say what would change and change nothing")
	format := outputFlag(cmd, "text", "json", "yaml", "name")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.written(*format,
			proxiesText)(a.client().RestoreConflict(cmd.Context(), client.RestoreConflict{ID: args[0], DryRun: dryRun}))
	}
	return cmd
}
