package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math"
	"os"
	"os/signal"
	"syscall"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/answer/envoybin"
	"github.com/nearside-mesh/nearside/agent/host/config"
	"github.com/nearside-mesh/nearside/agent/host/hold"
	"github.com/nearside-mesh/nearside/agent/host/sockets"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
)

// runAgent runs the agent until ctx ends or the process gets a signal.
func runAgent(ctx context.Context, env *command.Env, cfg *config.Config, o command.RunOptions) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	// The reader of the log may exit; by default, the next line would then end the process.
	pipe := make(chan os.Signal, 1)
	signal.Notify(pipe, syscall.SIGPIPE)
	defer signal.Stop(pipe)
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	level := new(slog.LevelVar)
	log := newLog(text.Verbatim(env.Stderr), cfg.Log.Format, level, toJournal(env.Getenv("JOURNAL_STREAM"), os.Stderr))
	file := agent.OpenLogFile(cfg)
	if file != nil {
		defer file.Close()
		if err := file.Health(); err != nil {
			log.Error("log.file cannot be opened; lines go only to stderr", "file", cfg.Log.File, "error", err)
		}
		log = slog.New(slog.NewMultiHandler(log.Handler(), newLog(file, cfg.Log.Format, level, false).Handler()))
	}
	tail := &agent.LogTail{}
	log = slog.New(slog.NewMultiHandler(log.Handler(), newLog(tail, cfg.Log.Format, level, false).Handler()))
	limitMemory(log, memlimit.FromCgroup)
	var holder []string
	if self, err := os.Executable(); err == nil {
		holder = []string{self, "hold", "--dir"}
	}
	given := hold.Inherited(append(socketNames, sockets.UnitUDP, sockets.UnitTCP)...)
	garbage := gcPercent
	if env.Getenv("GOGC") != "" {
		garbage = 0
	}
	ag, err := agent.New(cfg, agent.Deps{
		GCPercent: garbage,
		Hold:      holder, Sockets: given,
		Log: log, Level: level, LogFile: file, LogTail: tail,
		Version: env.Build().Version, Hangup: hangup, Reload: o.Reload, Await: o.Await,
		EnvoyBin: env.Getenv(envoybin.EnvoyVariable),
		Stopping: stop, // from here on a second signal ends the process at once
	})
	if err != nil {
		return err
	}
	return ag.Run(ctx)
}

// runFiles runs an agent on files, without proxies.
func runFiles(ctx context.Context, env *command.Env, o command.FilesOptions,
	use func(context.Context, string) error) error {
	return agent.RunFiles(ctx, agent.FilesOptions{Dirs: o.Dirs, Temp: o.Temp, Env: env.Vars,
		Version: env.Build().Version}, use)
}

// gcPercent is the allowed garbage in percent of the live heap, if that is large; see [agent.Deps].
// It is less than Go's 100, because the agent shares its node with the proxies and is idle most of
// the time. The variable GOGC takes precedence.
const gcPercent = 40

// limitMemory tells Go's collector of the memory limit of the agent's cgroup, less a tenth for what
// is not on its heap: it then works harder before the limit instead of the kernel ending the
// process at it. The variables GOMEMLIMIT and AUTOMEMLIMIT take precedence.
func limitMemory(log *slog.Logger, limit memlimit.Provider) {
	switch n, err := memlimit.Set(memlimit.WithProvider(limit)); {
	case errors.Is(err, memlimit.ErrCgroupsNotSupported), errors.Is(err, memlimit.ErrNoCgroup),
		err == nil && n == math.MaxInt64:
		log.Debug("memory is not limited")
	case err != nil:
		log.Warn("the memory limit cannot be determined; set GOMEMLIMIT", "error", err)
	default:
		log.Info("memory limit", "bytes", n)
	}
}

// socketNames are the names of the agent's sockets in socket units (FileDescriptorName=). The
// address of a socket determines its config key.
var socketNames = []string{"api", "xds", "log"}

// newLog returns the log of the agent. Lines for the journal have their priority in front.
func newLog(w io.Writer, format string, level slog.Leveler, journal bool) *slog.Logger {
	o := &slog.HandlerOptions{Level: level}
	if journal {
		return slog.New(newJournalHandler(w, format, o))
	}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}
