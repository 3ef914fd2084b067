package main

import (
	"errors"
	"io"
	"log/slog"
	"math"
	"os"
	"os/signal"
	"syscall"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/answer/envoybin"
	"github.com/nearside-mesh/nearside/agent/host/config"
	"github.com/nearside-mesh/nearside/agent/host/hold"
	"github.com/nearside-mesh/nearside/agent/host/sockets"
)

// configFlags are --config and --set.
type configFlags struct {
	file string
	set  []string
}

func (c *configFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.file, "config", "",
		"config file (default: NEARSIDE_CONFIG, else "+config.DefaultConfigFile+" where it exists)")
	cmd.Flags().StringArrayVar(&c.set, "set", nil, "key=value that takes precedence over file and environment; repeatable")
}

func (c *configFlags) options(a *app) config.LoadOptions {
	file := c.file
	if file == "" {
		file = a.getenv("NEARSIDE_CONFIG")
	}
	return config.LoadOptions{File: file, Env: a.env, Set: c.set,
		Warn: func(line string) { printLine(a.stderr, "warning: "+line) }}
}

// load reads and checks the config.
func (c *configFlags) load(a *app) (*config.Config, config.Origins, error) {
	cfg, origins, faults := config.Load(c.options(a))
	if len(faults) == 0 {
		faults = agent.CheckConfig(cfg)
	}
	if err := faults.Err(); err != nil {
		return nil, nil, err
	}
	return cfg, origins, nil
}

func (a *app) runCommand() *cobra.Command {
	var c configFlags
	cmd := &cobra.Command{
		Use:        "run",
		SuggestFor: []string{"start", "serve", "agent", "daemon"},
		Short:      "Run the agent in the foreground",
		Long: `Runs the agent in the foreground until it gets SIGTERM or SIGINT, a second one to stop it at once; its log goes to
standard error.
SIGHUP makes it read its config again: what can change without a restart does, and the log says what cannot.
Without any config file and without root, it runs below $XDG_RUNTIME_DIR/nearside or ./nearside-data, with state and logs below
$XDG_STATE_HOME/nearside.`,
		Example: `  nearside run
  nearside run --config /etc/nearside/agent.yaml --set node.zone=east --set log.level=debug`,
		Args: args(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, _, err := c.load(a)
			if err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			// Who reads the log may go away; by default, that would end the process with the next line.
			pipe := make(chan os.Signal, 1)
			signal.Notify(pipe, syscall.SIGPIPE)
			defer signal.Stop(pipe)
			hangup := make(chan os.Signal, 1)
			signal.Notify(hangup, syscall.SIGHUP)
			defer signal.Stop(hangup)
			level := new(slog.LevelVar)
			reload := c.options(a)
			reload.Warn = nil
			log := newLog(verbatim(a.stderr), cfg.Log.Format, level, toJournal(a.getenv("JOURNAL_STREAM"), os.Stderr))
			limitMemory(log, memlimit.FromCgroup)
			var holder []string
			if self, err := os.Executable(); err == nil {
				holder = []string{self, "hold", "--dir"}
			}
			store, given := hold.FromEnvironment(append(socketNames, sockets.UnitUDP, sockets.UnitTCP)...)
			garbage := gcPercent
			if a.getenv("GOGC") != "" {
				garbage = 0
			}
			ag, err := agent.New(cfg, agent.Deps{
				GCPercent: garbage,
				Hold:      holder, Systemd: store, Sockets: given,
				Log: log, Level: level,
				Version: buildVersion().Version, Hangup: hangup, Reload: reload,
				EnvoyBin: a.getenv(envoybin.EnvoyVariable),
				Stopping: stop, // from here on a second signal ends the process at once
			})
			if err != nil {
				return err
			}
			return ag.Run(ctx)
		},
	}
	c.add(cmd)
	return cmd
}

// gcPercent is how much garbage there may be, in percent of what is in use, where that is much; see
// [agent.Deps]. It is less than Go's 100, since the agent shares its node with what it serves and
// is idle most of the time. The variable GOGC takes precedence.
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

// socketNames are those that socket units give to what they open for the agent
// (FileDescriptorName=). Which key of the config a socket is for says its address.
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

func (a *app) checkConfigCommand() *cobra.Command {
	var c configFlags
	cmd := &cobra.Command{
		Use:   "check-config [FILE]",
		Short: "Validate the agent's own config",
		Long: `Reads the config as "nearside run" would, environment and --set included, and prints every fault with its
file, line and key on standard error. Exit code 65 when there is one.`,
		Example: `  nearside check-config
  nearside check-config agent.yaml --set node.zone=east`,
		Args: args(0, 1, "at most one FILE"),
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 1 {
				if c.file != "" {
					return usagef("the file is given twice, as argument and with --config")
				}
				c.file = args[0]
			}
			if _, _, err := c.load(a); err != nil {
				return err
			}
			printLine(a.stderr, "the config is valid")
			return nil
		},
	}
	c.add(cmd)
	return cmd
}

func (a *app) configCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "config",
		Short:   "Show the agent's config or its schema",
		Example: "  nearside config show --origins\n  nearside config schema > agent.schema.json",
		Args:    group,
		RunE:    help,
	}
	cmd.AddCommand(a.configShowCommand(), &cobra.Command{
		Use:     "schema",
		Short:   "Print the JSON Schema of the config file",
		Example: "  nearside config schema > agent.schema.json",
		Args:    args(0, 0, "no arguments"),
		RunE: func(*cobra.Command, []string) error {
			_, err := verbatim(a.stdout).Write(config.Schema())
			return err
		},
	})
	return cmd
}

func (a *app) configShowCommand() *cobra.Command {
	var c configFlags
	var withOrigins bool
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Print the effective config",
		Long: `Prints the config that "nearside run" would use, with every default, as a file that it can read.
With --origins, a comment behind each value says where it comes from: flag, env, file or default.`,
		Example: `  nearside config show
  nearside config show --origins --config agent.yaml
  nearside config show --origins -o json`,
		Args: args(0, 0, "no arguments"),
	}
	format := outputFlag(cmd, "yaml", "json")
	c.add(cmd)
	cmd.Flags().BoolVar(&withOrigins, "origins", false, "say where each value comes from")
	cmd.RunE = func(*cobra.Command, []string) error {
		cfg, origins, err := c.load(a)
		if err != nil {
			return err
		}
		shown := origins
		if !withOrigins {
			shown = nil
		}
		if *format == "yaml" {
			b, err := cfg.YAML(shown)
			if err != nil {
				return err
			}
			_, err = verbatim(a.stdout).Write(b)
			return err
		}
		b, err := cfg.YAML(nil)
		if err != nil {
			return err
		}
		var doc map[string]any
		if err := yaml.Unmarshal(b, &doc); err != nil {
			return err
		}
		if withOrigins {
			_, err = a.printed(*format, struct {
				Config  map[string]any `json:"config"`
				Origins config.Origins `json:"origins"`
			}{doc, origins})
			return err
		}
		_, err = a.printed(*format, doc)
		return err
	}
	return cmd
}
