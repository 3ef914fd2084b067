package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/serve/client"
)

func (a *app) waitCommand() *cobra.Command {
	w := waiting{}
	cmd := &cobra.Command{
		Use:   "wait TYPE/NAME",
		Short: "Wait until the proxies have applied a change",
		Long: `Waits until every connected proxy of this node that the resource touches has acknowledged its last change, or with
--for=gone its deletion. A policy touches the proxies that it selects and those that it selected before; any other
resource may touch every proxy of its mesh.

A resource file that was written before the command is read first.

The exit code is 0 when all have, 2 when a proxy rejects what the resource makes (or when it is a shadow policy, which
never acts), and 3 when the time is up; then those that are late are named with what they wait for. An agent that
restarts meanwhile is waited for too.

With --scope mesh the nodes of the gossip pool that are alive are asked as well: each must have the same version, and its
proxies have acknowledged it. Nodes that are dead are named, and not waited for.`,
		Example: `  nearside wait meshtimeout/slow --for=applied
  nearside apply -f slow.yaml && nearside wait mt/slow --timeout 1m
  nearside delete mt slow && nearside wait mt/slow --for=gone`,
		Args:              args(1, 2, "TYPE/NAME or TYPE NAME"),
		ValidArgsFunction: a.completeTypeAndName,
	}
	a.meshFlag(cmd)
	fl := cmd.Flags()
	choiceFlag(cmd, &choice{&w.what, "--for", []string{client.ForApplied, client.ForGone}}, "for", "",
		"what to wait for: ")
	fl.StringVar(&w.scope, "scope", client.ScopeNode,
		"whose proxies: those of this node, or mesh for those of all living nodes of the pool")
	fl.DurationVar(&w.timeout, "timeout", 30*time.Second, "how long to wait")
	_ = cmd.RegisterFlagCompletionFunc("scope",
		cobra.FixedCompletions([]string{client.ScopeNode, client.ScopeMesh}, cobra.ShellCompDirectiveNoFileComp))
	format := outputFlag(cmd, "text", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case w.scope != client.ScopeNode && w.scope != client.ScopeMesh:
			return usagef("--scope %q is not possible; node or mesh", w.scope)
		case w.timeout <= 0:
			return usagef("--timeout %s is not possible; give a duration above 0", w.timeout)
		}
		return a.wait(cmd.Context(), &w, args, *format)
	}
	return cmd
}

// waiting is one wait.
type waiting struct {
	what, scope string
	timeout     time.Duration

	last     *client.Applied // the last answer; nil: none yet
	lost     error           // why there is no newer one; nil while the agent answers
	terminal io.Writer       // where progress is shown; nil: nowhere
	shown    string          // there
}

const (
	// pollTerminal and pollOther are how long one request may wait for an answer: less where somebody
	// looks on.
	pollTerminal, pollOther = time.Second, 20 * time.Second
	// reconnectEvery is how long after a failed attempt the agent is tried again.
	reconnectEvery = 200 * time.Millisecond
)

func (a *app) wait(ctx context.Context, w *waiting, args []string, format string) error {
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	if terminal(a.stderr) {
		w.terminal = verbatim(a.stderr)
	}
	var r reference
	err := a.persist(ctx, w, func() (err error) {
		r, err = a.reference(ctx, args)
		return err
	})
	if err == nil {
		err = a.follow(ctx, w, r)
	}
	w.show("")
	if err != nil {
		return err
	}
	return a.printWaited(w, r, format)
}

// follow asks until it is decided, or ctx ends.
func (a *app) follow(ctx context.Context, w *waiting, r reference) error {
	q := client.Wait{Type: r.kind.Kind, Mesh: r.mesh, Name: r.name, For: w.what, Scope: w.scope, Timeout: "0s"}
	for {
		err := a.persist(ctx, w, func() error {
			answer, err := a.client().Wait(ctx, q)
			if err == nil {
				w.last = answer
			}
			return err
		})
		if err != nil {
			return err
		}
		if w.last == nil || w.last.State != client.StatePending || ctx.Err() != nil {
			return nil
		}
		w.show(fmt.Sprintf("waiting for %s: %s", typeAndName(r.kind.Kind, r.name), howFar(w.last)))
		q.Late = nil
		for _, p := range w.last.Late {
			q.Late = append(q.Late, p.Mesh+"/"+p.Name)
		}
		poll := pollOther
		if w.terminal != nil {
			poll = pollTerminal
		}
		end, _ := ctx.Deadline()
		left := time.Until(end) - reconnectEvery/4 // so that the answer comes before the end
		if left <= 0 {
			return nil
		}
		q.Timeout = min(poll, left).String()
	}
}

// persist asks an agent until it answers, or ctx ends, which is no error once there has been an
// answer.
func (a *app) persist(ctx context.Context, w *waiting, ask func() error) error {
	for {
		err := ask()
		var (
			unreachable *client.UnreachableError
			unanswered  *client.UnansweredError
			problem     *client.Problem
		)
		switch {
		case err == nil:
			w.lost = nil
			return nil
		case ctx.Err() != nil && w.last != nil:
			return nil // there is an answer, if not to this question
		case ctx.Err() != nil && w.lost != nil:
			return w.lost
		case errors.As(err, &unreachable), errors.As(err, &unanswered),
			errors.As(err, &problem) && problem.Type == client.ProblemNotReady:
			if w.lost == nil && w.terminal == nil {
				printf(a.stderr, "%v; trying again\n", err)
			}
			w.lost = err
			w.show(err.Error() + "; trying again")
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
func (w *waiting) show(line string) {
	if w.terminal == nil || line == w.shown {
		return
	}
	fmt.Fprintf(w.terminal, "\r\033[K%s", clip.Printable(line))
	w.shown = line
}

// terminal says whether somebody looks at what is written.
func terminal(w io.Writer) bool {
	f, ok := verbatim(w).(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// howFar is the progress in one line.
func howFar(s *client.Applied) string {
	if s.Proxies+s.LateTotal == 0 && s.Reason != "" {
		return s.Reason
	}
	line := fmt.Sprintf("%d of %d proxies have it", s.Acknowledged, s.Acknowledged+s.LateTotal)
	if len(s.Late) > 0 {
		line += fmt.Sprintf(", late is %s/%s", s.Late[0].Mesh, s.Late[0].Name)
	} else if len(s.LateNodes) > 0 {
		line += ", late is node " + s.LateNodes[0].Name
	}
	return line
}

// printWaited says how the wait has ended.
func (a *app) printWaited(w *waiting, r reference, format string) error {
	s := w.last
	if _, err := a.printed(format, s); err != nil {
		return err
	}
	name := typeAndName(r.kind.Kind, r.name) + inMesh(r.mesh)
	switch s.State {
	case client.StatePending:
		printf(a.stderr, "error: after %s %s is not %s", w.timeout, name, w.what)
		if s.Reason != "" {
			printf(a.stderr, ": %s", s.Reason)
		}
		if s.LateTotal > 0 {
			printf(a.stderr, "; %s late", counted(s.LateTotal, "proxy"))
		}
		if n := len(s.LateNodes); n > 0 {
			printf(a.stderr, "; %s late", counted(n, "node"))
		}
		printLine(a.stderr)
		for _, p := range s.Late {
			printf(a.stderr, "  %s/%s: %s\n", p.Mesh, p.Name, p.Reason)
		}
		for _, n := range s.LateNodes {
			printf(a.stderr, "  node %s: %s\n", n.Name, n.Reason)
		}
		if w.lost != nil {
			printf(a.stderr, "  this is the last answer of the agent: %v\n", w.lost)
		}
		return silent(exitTimeout)
	case client.StateRejected:
		printf(a.stderr, "error: %s is rejected\n", name)
		for _, x := range s.Rejected {
			printf(a.stderr, "  %s/%s: %s %s: %s\n", x.Mesh, x.Name, shortType(x.TypeURL), x.Resource,
				oneLine(x.Reason)+client.RetrySaid(x.Retry))
			printBlame(a.stderr, "    ", x.Policies)
		}
		return silent(exitNo)
	case client.StateShadow, client.StateInert:
		printf(a.stderr, "error: %s does not act: %s\n", name, s.Reason)
		return silent(exitNo)
	}
	if format != "text" {
		return nil
	}
	line := fmt.Sprintf("%s %s", name, w.what)
	switch {
	case s.Reason != "":
		line += ": " + s.Reason
	case s.Proxies == 0:
		line += ": no connected proxy is touched"
	default:
		line += fmt.Sprintf(": %s acknowledged revision %d", counted(s.Acknowledged, "proxy"), s.Revision)
	}
	if s.Nodes > 0 {
		line += fmt.Sprintf("; on %s", counted(s.Nodes, "node"))
	}
	if len(s.Unasked) > 0 {
		line += "; not asked, since they are dead: " + strings.Join(s.Unasked, ", ")
	}
	if !s.OldUntil.IsZero() {
		line += "; connections opened before may keep the filters of before until " + s.OldUntil.Local().Format("15:04:05")
	}
	printLine(a.stdout, line)
	return nil
}

// counted is a number with its noun: "1 file", "2 files", "3 proxies".
func counted(n int, noun string) string {
	switch stem, y := strings.CutSuffix(noun, "y"); {
	case n == 1:
	case y:
		noun = stem + "ies"
	default:
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}
