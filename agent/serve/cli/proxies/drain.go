package proxies

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nearside-mesh/nearside/agent/base/plural"
	"github.com/nearside-mesh/nearside/agent/compute/bootstrap"
	"github.com/nearside-mesh/nearside/agent/deliver/proxydrain"
	"github.com/nearside-mesh/nearside/agent/host/envoyadmin"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
	"github.com/nearside-mesh/nearside/agent/serve/client"
)

const (
	// drainPoll is the time for one answer of the agent.
	drainPoll = 20 * time.Second
	// answerTime is the time for an answer to arrive after its own timeout.
	answerTime = 2 * time.Second
	// agentTime is how long a proxy that drains itself waits for an agent that does not answer.
	agentTime = 3 * time.Second
)

// draining is the state of one drain command.
type draining struct {
	undo, wait, untilUndo bool

	timeout time.Duration
	file    string // bootstrap; "" for the API

	last *api.Drain // last answer; nil: none
}

func drainCommand(env *command.Env) *cobra.Command {
	d := draining{}
	cmd := &cobra.Command{
		Use:   "drain NAME",
		Short: "Take a dataplane out of service before it stops",
		Long: `Takes a dataplane out of service in three steps, so that it can stop without failed requests.
First its endpoints leave all proxies of the mesh, on all nodes of the pool. Then its Envoy fails
its health checks: it closes each HTTP connection after a response, and its /ready answers 503. With
--wait, the command then waits until the Envoy has no requests and TCP connections at its inbounds.
The Envoy continues to accept connections, so a late client does not fail. The outbounds continue to
work.

The drain ends when the Envoy is started again, and with --undo. With --until-undo, only --undo ends
it, so that an Envoy which starts before its workload receives no requests. --undo --wait waits
until all proxies have the endpoints again. A drain survives a restart of the agent.

NAME is a dataplane of this node, and the command needs the verb update on it. With --bootstrap, a
proxy drains itself over its xDS server: the caller needs only the user, the token, or the
certificate of the Envoy. Use this as ExecStop= of a unit and as preStop hook of a container:

  ExecStop=-/usr/bin/nearside drain --bootstrap FILE --wait --timeout 20s

The exit code is 0 if no proxy has the endpoints, and with --wait if all requests have ended. It is 3
after --timeout; the output then names the late proxies and nodes. It is 1 if the Envoy could not be
changed. In all these cases the drain remains in force, and the Envoy may stop.`,
		Example: `  nearside drain web --wait
  nearside drain web -m shop --undo
  nearside drain --bootstrap /run/envoy-web/envoy.yaml --wait --timeout 20s`,
		Args: command.Args(0, 1, "the NAME of a dataplane, or --bootstrap"),
	}
	command.MeshFlag(env, cmd)
	cmd.ValidArgsFunction = command.CompleteNamesOf(env, "dataplanes")
	fl := cmd.Flags()
	fl.BoolVar(&d.undo, "undo", false, "put the dataplane back into service")
	fl.BoolVar(&d.untilUndo, "until-undo", false, "drain also after the Envoy is started again")
	fl.BoolVar(&d.wait, "wait", false, "wait also until all requests and TCP connections at the inbounds have ended; "+
		"with --undo, until all proxies have the endpoints")
	fl.DurationVar(&d.timeout, "timeout", 30*time.Second, "time to wait")
	fl.StringVar(&d.file, "bootstrap", "", "drain the proxy of this bootstrap as the proxy itself")
	format := command.OutputFlag(cmd, "text", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case d.timeout <= 0:
			return command.Usagef("--timeout %s is invalid; give a duration above 0", d.timeout)
		case d.undo && d.untilUndo:
			return command.Usagef("--undo and --until-undo exclude each other")
		case (d.file == "") == (len(args) == 0):
			return command.Usagef("give the NAME of a dataplane or --bootstrap, and not both")
		case d.file != "" && (cmd.Flags().Changed("server") || cmd.Flags().Changed("socket")):
			return command.Usagef("--server and --socket cannot be used with --bootstrap, which names the xDS server")
		case d.file != "" && cmd.Flags().Changed("mesh"):
			return command.Usagef("--mesh cannot be used with --bootstrap, which names the mesh")
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), d.timeout)
		defer cancel()
		var err error
		if d.file != "" {
			err = d.own(ctx, env)
		} else {
			var name string
			if name, err = command.DataplaneName(ctx, env, nil, args[0]); err != nil {
				return err
			}
			err = d.ask(ctx, d.wait, func(ctx context.Context, q api.DrainRequest) (*api.Drain, error) {
				return env.Client().Drain(ctx, env.Mesh, name, q)
			})
		}
		if d.last == nil {
			return err
		}
		if _, perr := command.Printed(env, *format, d.last); perr != nil {
			return perr
		}
		if err == nil {
			err = d.outcome(env, *format == "text")
		}
		return err
	}
	return cmd
}

// ask asks the agent until the endpoints have left, with wait until the requests have ended, or
// until ctx ends.
func (d *draining) ask(ctx context.Context, wait bool,
	call func(context.Context, api.DrainRequest) (*api.Drain, error)) error {
	end, _ := ctx.Deadline()
	for {
		left := max(0, min(drainPoll, time.Until(end)))
		q := api.DrainRequest{Undo: d.undo, UntilUndo: d.untilUndo, Wait: wait, Timeout: left.String()}
		answering, cancel := context.WithTimeout(context.WithoutCancel(ctx), left+answerTime)
		answer, err := call(answering, q)
		cancel()
		if err != nil {
			return err
		}
		d.last = answer
		leaving := answer.State == api.DrainLeaving || answer.State == api.DrainReturning
		active := wait && answer.State == api.DrainDraining && answer.Active != nil
		if !leaving && !active || ctx.Err() != nil {
			return nil
		}
	}
}

// own drains the proxy of a bootstrap as the proxy: it asks the agent over the xDS server, and
// changes the Envoy. It changes the Envoy also if the agent does not answer.
func (d *draining) own(ctx context.Context, env *command.Env) error {
	data, err := command.ReadFile(d.file)
	if err != nil {
		return fmt.Errorf("--bootstrap %s: %w", d.file, command.Reason(err))
	}
	b, err := bootstrap.Parse(data)
	if err != nil {
		return command.Exit(command.ExitInvalid, fmt.Errorf("--bootstrap %s: %w", d.file, err))
	}
	ref, err := node.ParseRef(b.Node.GetId())
	if err != nil {
		return command.Exit(command.ExitInvalid, fmt.Errorf("--bootstrap %s: %w", d.file, err))
	}
	began := time.Now()
	err = d.ask(ctx, d.undo && d.wait, func(ctx context.Context, q api.DrainRequest) (*api.Drain, error) {
		for {
			answer, err := client.OwnDrain(ctx, b, q)
			code := status.Code(err)
			if (code != codes.Unavailable && code != codes.ResourceExhausted) || time.Since(began) > agentTime {
				return answer, err
			}
			select {
			case <-time.After(agentTime / 20):
			case <-ctx.Done():
				return nil, err
			}
		}
	})
	if d.last == nil {
		d.last = &api.Drain{Mesh: ref.Mesh, Name: ref.Name, State: api.DrainLeaving, Reason: "the agent does not answer"}
	}
	d.changeEnvoy(ctx, b)
	return agentError(err)
}

// agentError returns the error of the xDS server with an exit code.
func agentError(err error) error {
	if err == nil {
		return nil
	}
	message := errors.New(status.Convert(err).Message())
	switch status.Code(err) {
	case codes.PermissionDenied, codes.Unauthenticated:
		return command.Exit(command.ExitPermission, message)
	case codes.Unavailable:
		return command.Exit(command.ExitUnreachable, fmt.Errorf("the agent does not answer: %w", message))
	case codes.Unimplemented:
		return command.Exit(command.ExitFailed, errors.New("this agent cannot drain proxies; upgrade it"))
	}
	return command.Exit(command.ExitFailed, message)
}

// changeEnvoy makes the Envoy of a bootstrap fail or pass its health checks. It then waits until it
// has no requests, if that is wanted and the endpoints have left.
func (d *draining) changeEnvoy(ctx context.Context, b *bootstrap.File) {
	if b.AdminSocket == "" {
		d.last.Envoy = "the bootstrap has no admin socket"
		return
	}
	envoy := envoyadmin.Envoy{Socket: b.AdminSocket}
	asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second) // also after the timeout
	defer cancel()
	change := envoy.FailHealth
	if d.undo {
		change = envoy.PassHealth
	}
	if err := change(asking); err != nil {
		d.last.Envoy = err.Error()
		return
	}
	if d.undo {
		return
	}
	n, err := proxydrain.Quiet(ctx, envoy, d.wait)
	if err != nil {
		d.last.Envoy = err.Error()
		return
	}
	if d.last.Active = &n; n == 0 && d.wait && d.last.State == api.DrainDraining {
		d.last.State = api.DrainDrained
	}
}

// outcome prints the outcome, and returns its exit code as an error.
func (d *draining) outcome(env *command.Env, print bool) error {
	s := d.last
	name := text.TypeAndName("Dataplane", s.Name) + text.InMesh(s.Mesh)
	late := false
	switch s.State {
	case api.DrainLeaving, api.DrainReturning:
		late = true
		if s.State == api.DrainLeaving {
			text.Printf(env.Stderr, "error: after %s, proxies may still send requests to %s", d.timeout, name)
		} else {
			text.Printf(env.Stderr, "error: after %s, some proxies may not yet send requests to %s", d.timeout, name)
		}
		if s.Reason != "" {
			text.Printf(env.Stderr, ": %s", s.Reason)
		}
		text.Println(env.Stderr)
		for _, p := range s.Late {
			text.Printf(env.Stderr, "  %s/%s: %s\n", p.Mesh, p.Name, p.Reason)
		}
		if more := s.LateTotal - len(s.Late); more > 0 {
			text.Printf(env.Stderr, "  and %s more\n", plural.Count(more, "proxy"))
		}
		for _, n := range s.LateNodes {
			text.Printf(env.Stderr, "  node %s: %s\n", n.Name, n.Reason)
		}
	case api.DrainDraining:
		if late = d.wait && s.Active != nil; late {
			text.Printf(env.Stderr, "error: after %s, %s has %d active requests and TCP connections\n", d.timeout, name,
				*s.Active)
		}
	}
	for _, n := range s.Unasked {
		text.Printf(env.Stderr, "warning: node %s is dead; its proxies may still use the previous endpoints\n", n)
	}
	if print && !late {
		text.Println(env.Stdout, drainLine(s, name))
	}
	switch {
	case s.Envoy != "" && !d.undo:
		return command.Exit(command.ExitFailed, fmt.Errorf("the Envoy was not asked to drain: %s", s.Envoy))
	case s.Envoy != "":
		return command.Exit(command.ExitFailed, fmt.Errorf("the Envoy was not asked to end the drain: %s", s.Envoy))
	case late:
		return command.Silent(command.ExitTimeout)
	}
	return nil
}

// drainLine returns the outcome in one line.
func drainLine(s *api.Drain, name string) string {
	if s.State == api.DrainUndone {
		return name + " is in service again"
	}
	line := fmt.Sprintf("%s is %s: %s acknowledged that its endpoints are gone", name, s.State,
		plural.Count(s.Proxies, "proxy"))
	if s.Nodes > 1 {
		line += fmt.Sprintf(" on %s", plural.Count(s.Nodes, "node"))
	}
	switch {
	case s.State == api.DrainDrained:
		line += ", and it has no active requests"
	case s.Active != nil:
		line += fmt.Sprintf(", and it has %d active requests and TCP connections", *s.Active)
	}
	return line
}
