package resources

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/base/plural"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
	"github.com/nearside-mesh/nearside/agent/serve/client"
)

func waitCommand(env *command.Env) *cobra.Command {
	w := waiting{}
	cmd := &cobra.Command{
		Use:   "wait TYPE/NAME",
		Short: "Wait until the proxies have applied a change",
		Long: `Waits until every connected proxy of this node that a resource affects has acknowledged its last
change, or with --for=gone its deletion. A policy affects the proxies that it selects and those that
it selected before. Any other resource may affect every proxy of its mesh. The agent first reads
resource files that were written before the command. The command also waits for an agent that
restarts.

With --scope mesh, the command also asks the living nodes of the gossip pool. Each must have the
same version, and its proxies must have acknowledged it. Dead nodes are named, but not waited for.

If filters change, connections from before the change use the previous ones until Envoy has drained
them. With --effective, the command also waits until the last of these has ended. The agent counts
them, so this usually takes less than the drain time of the Envoys. No Envoy can end only these
connections: one with requests ends after a response, an idle one at the end of the drain time.

The exit code is 0 if all proxies have applied the change. It is 2 if a proxy rejects a resulting
resource, if a proxy keeps an older config because no new one can be computed, if an access log is
disabled because its destination is not ready, if a policy has no effect on any proxy that it
selects, or if it is a shadow policy, which never acts. It is 3 after --timeout; the output then
names the late proxies and what they wait for. Without --timeout, --effective waits 30 s for the
proxies, and then until all old connections must have ended.`,
		Example: `  nearside wait meshtimeout/slow --for=applied
  nearside wait meshaccesslog/all --effective --timeout 2m
  nearside apply -f slow.yaml && nearside wait mt/slow --timeout 1m
  nearside delete mt slow && nearside wait mt/slow --for=gone`,
		Args: command.Args(1, 2, "TYPE/NAME or TYPE NAME"),
	}
	command.ResourceFlags(env, cmd)
	fl := cmd.Flags()
	command.ChoiceFlag(cmd, &w.what, "for", "", "what to wait for: ", api.ForApplied, api.ForGone)
	fl.StringVar(&w.scope, "scope", api.ScopeNode,
		"whose proxies: node for this node, or mesh for all living nodes of the pool")
	fl.BoolVar(&w.effective, "effective", false, "wait also until connections with the previous filters have ended")
	fl.DurationVar(&w.timeout, "timeout", 30*time.Second, "time to wait")
	_ = cmd.RegisterFlagCompletionFunc("scope",
		cobra.FixedCompletions([]string{api.ScopeNode, api.ScopeMesh}, cobra.ShellCompDirectiveNoFileComp))
	format := command.OutputFlag(cmd, "text", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case w.scope != api.ScopeNode && w.scope != api.ScopeMesh:
			return command.Usagef("--scope %q is invalid; use node or mesh", w.scope)
		case w.timeout <= 0:
			return command.Usagef("--timeout %s is invalid; give a duration above 0", w.timeout)
		}
		w.open = w.effective && !fl.Changed("timeout")
		return wait(cmd.Context(), env, &w, args, *format)
	}
	return cmd
}

// waiting is the state of one wait.
type waiting struct {
	what, scope string
	effective   bool
	open        bool // after timeout, waits for old connections as long as they may live
	timeout     time.Duration

	last  *api.Applied // last answer; nil before the first
	lost  error        // why the agent does not respond; nil if it does
	shown string       // line on the terminal
	took  time.Duration
}

const (
	// pollTerminal and pollOther bound one request. On a terminal, shorter requests update the
	// progress line.
	pollTerminal, pollOther = time.Second, 20 * time.Second
	// reconnectEvery is the interval between attempts to reach the agent.
	reconnectEvery = 200 * time.Millisecond
)

// lateEnd is the time by which the end of old connections may be reported late.
const lateEnd = 10 * time.Second

func wait(ctx context.Context, env *command.Env, w *waiting, args []string, format string) error {
	began := time.Now()
	first, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	var r command.Reference
	err := persist(first, env, w, func() (err error) {
		r, err = command.Resolve(first, env, args)
		return err
	})
	if err == nil {
		err = follow(first, env, w, r)
	}
	for err == nil && w.open && w.last != nil && w.last.State == api.StateDraining && ctx.Err() == nil {
		until := w.last.OldUntil
		next, cancel := context.WithDeadline(ctx, until.Add(lateEnd))
		err = follow(next, env, w, r)
		over := next.Err() != nil || !w.last.OldUntil.After(until)
		if cancel(); over {
			break
		}
	}
	w.show(env.Terminal, "")
	if err != nil {
		return err
	}
	w.took = time.Since(began)
	return printWaited(env, w, r, format)
}

// follow polls until the outcome is final, or ctx ends. A wait without a fixed end returns when
// only old connections are left whose end ctx does not cover.
func follow(ctx context.Context, env *command.Env, w *waiting, r command.Reference) error {
	q := api.Wait{Type: r.Kind.Kind, Mesh: r.Mesh, Name: r.Name, For: w.what, Scope: w.scope, Effective: w.effective,
		Timeout: "0s"}
	end, _ := ctx.Deadline()
	for {
		err := persist(ctx, env, w, func() error {
			answer, err := env.Client().Wait(ctx, q)
			if err == nil {
				w.last = answer
			}
			return err
		})
		if err != nil {
			return err
		}
		switch {
		case w.last == nil || ctx.Err() != nil:
			return nil
		case w.last.State == api.StateDraining:
			if w.open && w.last.OldUntil.Add(lateEnd).After(end) {
				return nil
			}
		case w.last.State != api.StatePending:
			return nil
		}
		w.show(env.Terminal, fmt.Sprintf("waiting for %s: %s", text.TypeAndName(r.Kind.Kind, r.Name), progressLine(w.last)))
		q.Late = nil
		for _, p := range w.last.Late {
			q.Late = append(q.Late, p.Mesh+"/"+p.Name)
		}
		poll := pollOther
		if env.Terminal != nil {
			poll = pollTerminal
		}
		left := time.Until(end) - reconnectEvery/4 // leaves time for the answer to arrive
		if left <= 0 {
			return nil
		}
		q.Timeout = min(poll, left).String()
	}
}

// persist repeats a request until the agent responds or ctx ends. The end of ctx is an error only
// before the first answer.
func persist(ctx context.Context, env *command.Env, w *waiting, ask func() error) error {
	for {
		err := ask()
		var (
			unreachable *client.UnreachableError
			unanswered  *client.UnansweredError
			problem     *api.Error
		)
		switch {
		case err == nil:
			w.lost = nil
			return nil
		case ctx.Err() != nil && w.last != nil:
			return nil // an earlier answer exists
		case ctx.Err() != nil && w.lost != nil:
			return w.lost
		case errors.As(err, &unreachable), errors.As(err, &unanswered),
			errors.As(err, &problem) && problem.Type == api.ProblemNotReady:
			if w.lost == nil && env.Terminal == nil {
				text.Printf(env.Stderr, "%v; trying again\n", err)
			}
			w.lost = err
			w.show(env.Terminal, err.Error()+"; trying again")
		default:
			return err
		}
		select {
		case <-time.After(reconnectEvery):
		case <-ctx.Done():
			if w.last == nil {
				return err
			}
			return nil
		}
	}
}

// show replaces the line on the terminal.
func (w *waiting) show(terminal io.Writer, line string) {
	if terminal == nil || line == w.shown {
		return
	}
	fmt.Fprintf(terminal, "\r\033[K%s", clip.Printable(line))
	w.shown = line
}

// progressLine returns the progress in one line.
func progressLine(s *api.Applied) string {
	if s.Proxies+s.LateTotal == 0 && s.Reason != "" {
		return s.Reason
	}
	if s.State == api.StateDraining {
		return "applied by " + plural.Count(s.Acknowledged, "proxy") + "; " + oldLine(s)
	}
	line := fmt.Sprintf("%d of %s applied it", s.Acknowledged, plural.Count(s.Acknowledged+s.LateTotal, "proxy"))
	if len(s.Late) > 0 {
		line += fmt.Sprintf(", waiting for %s/%s", s.Late[0].Mesh, s.Late[0].Name)
	} else if len(s.LateNodes) > 0 {
		line += ", waiting for node " + s.LateNodes[0].Name
	}
	return line
}

// oldLine says how many connections use previous filters, and until when.
func oldLine(s *api.Applied) string {
	counted, connections := 0, 0
	for _, p := range s.Old {
		if p.Connections != nil {
			counted, connections = counted+1, connections+*p.Connections
		}
	}
	line := "older connections"
	if counted == s.OldTotal {
		line = plural.Count(connections, "older connection")
	}
	return fmt.Sprintf("%s of %s may use the previous filters, until %s at the latest", line,
		plural.Count(s.OldTotal, "proxy"), text.Time(s.OldUntil))
}

// printOld prints the proxies with older connections.
func printOld(w io.Writer, s *api.Applied) {
	for _, p := range s.Old {
		text.Printf(w, "  %s\n", text.OldProxy(&p))
	}
	if more := s.OldTotal - len(s.Old); more > 0 {
		text.Printf(w, "  and %s more\n", plural.Count(more, "proxy"))
	}
}

// printWaited prints the outcome of a wait, and returns its exit code as an error.
func printWaited(env *command.Env, w *waiting, r command.Reference, format string) error {
	s := w.last
	if _, err := command.Printed(env, format, s); err != nil {
		return err
	}
	name := text.TypeAndName(r.Kind.Kind, r.Name) + text.InMesh(r.Mesh)
	switch s.State {
	case api.StatePending:
		text.Printf(env.Stderr, "error: after %s %s is not %s", w.timeout, name, w.what)
		if s.Reason != "" {
			text.Printf(env.Stderr, ": %s", s.Reason)
		}
		if s.LateTotal > 0 {
			text.Printf(env.Stderr, "; %s late", plural.Count(s.LateTotal, "proxy"))
		}
		if n := len(s.LateNodes); n > 0 {
			text.Printf(env.Stderr, "; %s late", plural.Count(n, "node"))
		}
		text.Println(env.Stderr)
		for _, p := range s.Late {
			text.Printf(env.Stderr, "  %s/%s: %s\n", p.Mesh, p.Name, p.Reason)
		}
		for _, n := range s.LateNodes {
			text.Printf(env.Stderr, "  node %s: %s\n", n.Name, n.Reason)
		}
		if w.lost != nil {
			text.Printf(env.Stderr, "  the agent no longer responds, this is its last answer: %v\n", w.lost)
		}
		return command.Silent(command.ExitTimeout)
	case api.StateStale:
		text.Printf(env.Stderr, "error: %s is not in force on %s\n", name, plural.Count(s.LateTotal, "proxy"))
		for _, p := range s.Late {
			text.Printf(env.Stderr, "  %s/%s: %s\n", p.Mesh, p.Name, p.Reason)
		}
		return command.Silent(command.ExitNo)
	case api.StateDraining:
		text.Printf(env.Stderr, "error: after %s %s is %s, but not effective: %s\n",
			w.took.Round(100*time.Millisecond), name, w.what, oldLine(s))
		printOld(env.Stderr, s)
		return command.Silent(command.ExitTimeout)
	case api.StateRejected:
		text.Printf(env.Stderr, "error: %s is rejected\n", name)
		for _, x := range s.Rejected {
			text.Printf(env.Stderr, "  %s/%s: %s %s: %s\n", x.Mesh, x.Name, text.ShortType(x.TypeURL), x.Resource,
				text.OneLine(x.Reason)+api.RetrySaid(x.Retry, time.Now())+text.Instead(x.Without))
			text.Blame(env.Stderr, "    ", x.Policies)
		}
		return command.Silent(command.ExitNo)
	case api.StateNoEffect:
		text.Printf(env.Stderr, "warning: %s has %s\n", name, s.Reason)
		warn(env, s.Warnings)
		return command.Silent(command.ExitNo)
	case api.StateShadow, api.StateInert:
		text.Printf(env.Stderr, "error: %s does not act: %s\n", name, s.Reason)
		return command.Silent(command.ExitNo)
	}
	warn(env, s.Warnings)
	if format != "text" {
		return nil
	}
	line := fmt.Sprintf("%s %s", name, w.what)
	switch {
	case s.Reason != "":
		line += ": " + s.Reason
	case s.Proxies == 0:
		line += ": no connected proxy is affected"
	default:
		line += fmt.Sprintf(": %s acknowledged revision %d", plural.Count(s.Acknowledged, "proxy"), s.Revision)
	}
	if s.Nodes > 0 {
		line += fmt.Sprintf("; on %s", plural.Count(s.Nodes, "node"))
	}
	if len(s.Unasked) > 0 {
		line += "; not asked, because dead: " + strings.Join(s.Unasked, ", ")
	}
	switch {
	case !s.OldUntil.IsZero():
		line += "; older connections may use the previous filters until " + text.Time(s.OldUntil)
	case w.effective:
		line += "; no connection uses the previous filters"
	}
	text.Println(env.Stdout, line)
	if !s.OldUntil.IsZero() {
		printOld(env.Stdout, s)
	}
	return nil
}

// warn prints the warnings about a policy.
func warn(env *command.Env, list []string) {
	for _, w := range list {
		text.Printf(env.Stderr, "warning: %s\n", w)
	}
}
