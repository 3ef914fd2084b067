package node

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/host/intercept"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
)

func interceptUninstallCommand(env *command.Env) *cobra.Command {
	var p netnsFlags
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Remove the redirection",
		Long: `Deletes the table "inet nearside" and the record for the agent, and closes redirected connections,
so that clients reconnect. The exit code is 0 even if nothing was installed.`,
		Example: "  nearside intercept uninstall\n  nearside intercept uninstall --netns /run/netns/pod7",
		Args:    command.Args(0, 0, "no arguments; select the network namespace with --netns or --pid"),
	}
	p.add(cmd)
	cmd.RunE = func(*cobra.Command, []string) error {
		n, err := p.open()
		if err != nil {
			return err
		}
		defer n.Close()
		dir := p.records(env)
		records, _ := intercept.Records(dir)
		was, err := intercept.Uninstall(n, dir)
		if err != nil {
			return err
		}
		for _, r := range records {
			if r.Inode == n.Inode && r.Rule != "" {
				text.Printf(env.Stderr, "note: the agent installs it again, because the rule %s of intercept.watch selects the "+
					"namespace; change the rule\n", r.Rule)
			}
			if r.Inode == n.Inode && r.Dataplane != "" {
				text.Printf(env.Stderr, "note: the agent installs it again, because the label nearside.io/redirect of %s "+
					"asks for it\n", r.Dataplane)
			}
		}
		if was {
			text.Printf(env.Stdout, "uninstalled from %s\n", n)
		} else {
			text.Printf(env.Stdout, "nothing was installed in %s\n", n)
		}
		return nil
	}
	return cmd
}

func interceptStatusCommand(env *command.Env) *cobra.Command {
	var p netnsFlags
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show redirections, and whether they work",
		Long: `Shows every recorded installation, or the one of a network namespace with --netns or --pid: the rule
of intercept.watch or the Dataplane of the pod that made it (column RULE), what is redirected, for
whom, and how often. For DNS, the command
sends canary queries over UDP and TCP to unused loopback addresses and to each server in the
resolv.conf of the namespace.

STATE is active, partly (only one address family is redirected), waiting (names go to the real
servers), broken (a canary query did not reach the agent), tcp-only, or none.

The exit code is 2 unless every installation is active or tcp-only.`,
		Example: "  nearside intercept status\n  nearside intercept status --netns /run/netns/pod7 -o json",
		Args:    command.Args(0, 0, "no arguments; select the network namespace with --netns or --pid"),
	}
	p.add(cmd)
	return command.Asking(env, cmd, command.AsTable, func(w io.Writer, l *reports) { printReports(w, env.Stderr, l) },
		func(ctx context.Context, _ []string) (*reports, error) { return allReports(ctx, env, &p) },
		func(l *reports) bool { return !l.good() })
}

// reports is the document of "intercept status -o json".
type reports struct {
	Items []*intercept.Report `json:"items"`
}

func (l *reports) good() bool {
	for _, r := range l.Items {
		if !r.Good() {
			return false
		}
	}
	return len(l.Items) > 0
}

// allReports inspects the selected network namespace, or those of all records.
func allReports(ctx context.Context, env *command.Env, p *netnsFlags) (*reports, error) {
	dir := p.records(env)
	paths := []string{""}
	if p.netns == "" && p.pid == 0 {
		records, errs := intercept.Records(dir)
		for _, err := range errs {
			text.Printf(env.Stderr, "warning: %s\n", err)
		}
		for _, r := range records {
			if r.Netns != "" {
				paths = append(paths, r.Netns)
			}
		}
	}
	out := &reports{}
	for i, path := range paths {
		n, err := (&netnsFlags{netns: cmp.Or(path, p.netns), pid: p.pid}).open()
		if err != nil && i > 0 { // the namespace is gone; the agent removes its record
			out.Items = append(out.Items, &intercept.Report{Netns: path, State: intercept.StateWaiting, Reason: err.Error()})
			continue
		}
		if err != nil {
			return nil, err
		}
		r, err := intercept.Inspect(ctx, n, dir)
		n.Close()
		if err != nil {
			return nil, err
		}
		if r.State != intercept.StateNone || len(paths) == 1 {
			out.Items = append(out.Items, r)
		}
	}
	return out, nil
}

func printReports(w, notes io.Writer, l *reports) {
	t := text.NewTable(w, "NETNS", "STATE", "FAMILIES", "QUERIES", "CONNECTIONS", "INBOUND", "RULE", "REDIRECTED")
	for _, r := range l.Items {
		what := ""
		if r.Spec != nil {
			what = r.Spec.String()
		}
		t.Row(cmp.Or(r.Netns, "own"), r.State, strings.Join(r.Families, ","), fmt.Sprint(r.Counts.Queries),
			fmt.Sprint(r.Counts.Connections), fmt.Sprint(r.Counts.Inbound), cmp.Or(r.Rule, r.Dataplane, "-"), what)
	}
	t.Flush()
	for _, r := range l.Items {
		if r.Reason != "" {
			text.Printf(notes, "%s: %s\n", cmp.Or(r.Netns, "own"), r.Reason)
		}
	}
}
