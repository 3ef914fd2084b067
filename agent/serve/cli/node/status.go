package node

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
)

func statusCommand(env *command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the health of the agent on one screen",
		Long: `Shows the stored resources, the sync status of the proxies and the problems. Exit code 2 when it is not ready; with --exit-code
also when something is wrong: a check that has failed, a fault or conflict in a resource file, a resource that cannot be read, or a problem that is
an error. What is only warned of does not count.`,
		Example: "  nearside status\n  nearside status --exit-code >/dev/null || nearside status -o json | jq .problems",
		Args:    command.Args(0, 0, "no arguments"),
	}
	var strict bool
	cmd.Flags().BoolVar(&strict, "exit-code", false,
		"exit code 2 also when something is wrong with an agent that is ready")
	format := command.OutputFlag(cmd, "text", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return command.Show(env, *format, func(p0 *api.Status) error { return printStatus(env, p0) },
			func(s *api.Status) bool { return !s.Ready || strict && wrong(s) })(env.Client().Status(cmd.Context()))
	}
	return cmd
}

// inFiles counts what is wrong with resource files.
func inFiles(s *api.Status) (n int) {
	for _, f := range s.Files {
		n += len(f.Faults) + len(f.Conflicts)
	}
	return n
}

// wrong reports whether something is wrong that is more than a warning.
func wrong(s *api.Status) bool {
	return inFiles(s)+len(s.Store.Damaged) > 0 || s.Store.Error != "" ||
		slices.ContainsFunc(s.Checks, func(c api.Check) bool { return !c.OK }) ||
		slices.ContainsFunc(s.Problems, func(p api.Problem) bool { return p.Severity == api.SeverityError })
}

func printStatus(env *command.Env, s *api.Status) error {
	w, state := env.Stdout, "ready"
	if !s.Ready {
		state = "NOT READY"
	}
	text.Printf(w, "%s %s on %s (zone %s), pid %d, up %s: %s\n", s.Info.Product, s.Info.Version, s.Info.Node, s.Info.Zone,
		s.Info.PID, text.Age(s.Info.Started), state)
	for _, c := range s.Checks {
		mark := "ok  "
		switch {
		case !c.OK:
			mark = "FAIL"
		case c.Degraded:
			mark = "WARN"
		}
		text.Printf(w, "  %s %s: %s\n", mark, c.Name, c.Reason)
	}
	total := 0
	for _, n := range s.Store.Resources {
		total += n
	}
	text.Printf(w, "resources  %d at revision %d (%s)\n", total, s.Store.Revision, text.Counts(s.Store.Sources))
	if len(s.Store.Inert) > 0 {
		text.Printf(w, "  stored, but this version does not act on them: %s\n", text.Counts(s.Store.Inert))
	}
	if s.Store.Error != "" {
		text.Printf(w, "  FAIL state on disk: %s\n", s.Store.Error)
	}
	if s.Store.SetAside != "" {
		text.Printf(w, "  a damaged state file was set aside as %s\n", s.Store.SetAside)
	}
	for _, d := range s.Store.Damaged {
		text.Printf(w, "  FAIL damaged since %s and not in force: %s: %s\n", d.Since.Format(time.RFC3339),
			strings.Join(slices.DeleteFunc([]string{d.Type, d.Mesh, d.Name}, func(s string) bool { return s == "" }), "/"),
			d.Reason)
	}
	if r := s.Reconcile; r != nil {
		text.Printf(w, "configs    made %s ago from revision %d in %.1f ms\n", text.Age(r.At), r.Revision, r.Seconds*1000)
	} else {
		text.Println(w, "configs    none yet")
	}
	text.Printf(w, "proxies    %s\n", text.Counts(s.Proxies))
	if r := s.Refused; r.Total > 0 {
		text.Printf(w, "refused    %d streams, the latest %s ago: %s\n", r.Total, text.Age(r.At), r.Reason)
	}
	if list := s.RefusedConnections; len(list) > 0 {
		first := text.Each(list[:min(len(list), 5)], func(p api.ProxyRefusals) string {
			return fmt.Sprintf("%d by %s/%s", p.Count, p.Mesh, p.Name)
		})
		if more := len(list) - len(first); more > 0 {
			first = append(first, fmt.Sprintf("and more by %d others", more))
		}
		text.Printf(w, "outside    connections were refused: %s; see nearside passthrough suggest\n",
			strings.Join(first, ", "))
	}
	for _, holder := range slices.Sorted(maps.Keys(s.Holders)) {
		n := s.Holders[holder]
		if holder == "" {
			text.Printf(w,
				"FIFOs      %d of access logs, kept open by nobody but the agent: what Envoys log while it is away is lost\n", n)
			continue
		}
		text.Printf(w, "FIFOs      %d of access logs, kept open by %s while the agent is away\n", n, holder)
	}
	if l := s.LogLines; l != nil {
		dropped, line := uint64(0), ""
		for _, n := range l.Dropped {
			dropped += n
		}
		if dropped > 0 {
			line = " (" + text.Counts(l.Dropped) + ")"
		}
		text.Printf(w, "log lines  %d read, %d written, %d in flight, %d spooled, %d dropped%s\n",
			l.Read, l.Written, l.InFlight, l.Spooled, dropped, line)
	}
	if d := s.DNS; d != nil {
		switch {
		case d.State == api.DNSOff:
			text.Printf(w, "dns        off: %s\n", d.Reason)
		case d.Reason != "":
			text.Printf(w, "dns        %s on %s: %s\n", d.State, strings.Join(d.Listen, ", "), d.Reason)
		default:
			text.Printf(w, "dns        %d names on %s, queries: %s\n", d.Names, strings.Join(d.Listen, ", "),
				text.Counts(d.Queries))
		}
		if d.State != api.DNSOff {
			text.Printf(w, "  its sockets are held by %s while the agent is away\n", cmp.Or(d.Holder, "nobody"))
		}
	}
	text.Printf(w, "files      %d\n", len(s.Files))
	for _, f := range s.Files {
		if f.Missing != "" {
			text.Printf(w, "  WARN %s: %s, %s\n", f.Path, f.Missing, keptUntil(f.KeptUntil))
		}
		if f.Exposed != "" {
			fmt.Fprintf(w, "  WARN %s %s\n", f.Path, f.Exposed)
		}
		for _, x := range f.Faults {
			text.Printf(w, "  FAIL %s\n", x)
		}
		for _, k := range slices.Sorted(maps.Keys(f.Conflicts)) {
			text.Printf(w, "  FAIL %s: %s is managed by %s\n", f.Path, k, f.Conflicts[k])
		}
	}
	const most = 10
	all, where := len(s.Problems), ""
	if n := inFiles(s) + len(s.Store.Damaged); n > 0 {
		all, where = all+n, fmt.Sprintf(" (%d above)", n)
	}
	text.Printf(w, "problems   %d%s\n", all, where)
	for i, p := range s.Problems {
		if i == most {
			text.Printf(w, "  … and %d more, in nearside status -o yaml\n", len(s.Problems)-most)
			break
		}
		text.Printf(w, "  %s %s: %s\n", p.Severity, p.Resource, p.Reason)
	}
	if s.Unchecked > 0 {
		text.Printf(w, "  %s: ask again\n", unchecked(s))
	}
	return nil
}

// keptUntil says for how long the resources of a missing file are retained.
func keptUntil(t time.Time) string {
	if t.IsZero() {
		return "its resources are retained until the directory can be read"
	}
	return "its resources are retained until " + t.Local().Format("15:04:05.000")
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
		Args:    command.Args(0, 0, "no arguments"),
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
				return errors.New(err.Error()) // every failure is a 1
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
