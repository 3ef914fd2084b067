package node

import (
	"errors"
	"fmt"
	"log/slog"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/base/plural"
	"github.com/nearside-mesh/nearside/agent/host/hold"
	"github.com/nearside-mesh/nearside/agent/host/memory"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
)

// holdIdle is how long a holder without files or sockets waits for an agent before it exits.
const holdIdle = time.Minute

func holdCommand(env *command.Env) *cobra.Command {
	var dir string
	var stay, check bool
	cmd := &cobra.Command{
		Use:   "hold",
		Short: "Hold FIFOs and listening sockets while the agent is down",
		Long: `Keeps the FIFOs of access logs and the listening sockets open while the agent is down, so that
Envoys neither block nor lose log lines, and the next agent inherits the sockets with the connections
that wait in them. While a running agent does not read DNS queries, because it hangs, they get
SERVFAIL. If no holder serves the run directory, the agent starts this command itself. It
then holds only FIFOs and DNS sockets, and exits when it has held nothing for a minute.

With --stay it runs until it is stopped, holds the sockets of xDS, of receivers, and of the API too,
and replaces a holder that an agent has started, with its files. Use it in a unit or a container that is
separate from the agent's, as nearside-hold.service of the package does.

With --check it reports the running holder and exits with 2 if that has an older protocol.`,
		Example: `  nearside hold --dir /run/nearside --stay
  nearside hold --dir /run/nearside --check`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if dir == "" {
				return command.Usagef("--dir is required: the run directory of the agent")
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			if check {
				return checkHolder(env, dir)
			}
			log := slog.New(slog.NewTextHandler(text.Verbatim(env.Stderr), nil))
			err := hold.Serve(ctx, dir, hold.ServeOptions{Stay: stay, Idle: holdIdle, Log: log, Ready: func() {
				_, _ = daemon.SdNotify(true, daemon.SdNotifyReady)
				// A holder uses a small part of the program, mostly at its start.
				debug.FreeOSMemory()
				if err := memory.ReleaseProgram(); err != nil {
					log.Debug("memory of the program", "error", err)
				}
			}})
			if !stay && errors.Is(err, hold.ErrHeldElsewhere) {
				return nil // another holder won the race to start
			}
			return err
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "run directory of the agent, for the socket hold.sock")
	cmd.Flags().BoolVar(&stay, "stay", false, "keep running while nothing is held; for a unit or a container")
	cmd.Flags().BoolVar(&check, "check", false, "report the running holder instead of starting one")
	return cmd
}

// checkHolder prints the state of the running holder.
func checkHolder(env *command.Env, dir string) error {
	s, err := hold.Check(dir)
	if err != nil {
		return command.Exit(command.ExitUnreachable, err)
	}
	pid := ""
	if s.Pid > 0 {
		pid = fmt.Sprintf(" (pid %d)", s.Pid)
	}
	fmt.Fprintf(env.Stdout, "nearside hold%s holds %s and %s, protocol %d\n", pid,
		plural.Form(s.FIFOs, "1 FIFO", "%d FIFOs"), plural.Form(s.Sockets, "1 socket", "%d sockets"), s.Protocol)
	if s.Protocol < hold.Protocol {
		return command.Exit(command.ExitNo, fmt.Errorf("this program has protocol %d; restart the holder while the "+
			"agent runs: systemctl restart nearside-hold", hold.Protocol))
	}
	return nil
}
