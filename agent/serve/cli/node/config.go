package node

import (
	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/nearside-mesh/nearside/agent/host/config"
	"github.com/nearside-mesh/nearside/agent/host/unit"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
)

func runCommand(env *command.Env) *cobra.Command {
	c := command.ConfigFlags{Logged: true}
	var wait bool
	cmd := &cobra.Command{
		Use:        "run",
		SuggestFor: []string{"start", "serve", "agent", "daemon"},
		Short:      "Run the agent in the foreground",
		Long: `Runs the agent in the foreground until it receives SIGTERM or SIGINT. A second signal stops it at
once. The log goes to standard error.

On SIGHUP, the agent reloads its config. The log lists changed keys that need a restart.

With --wait, the next agent of a node can be started before the previous one ends. It serves as soon
as that one has ended, and until then only the webhook.

Without a config file and without root, the agent uses $XDG_RUNTIME_DIR/nearside or ./nearside-data,
and keeps state and logs below $XDG_STATE_HOME/nearside.`,
		Example: `  nearside run
  nearside run --config /etc/nearside/agent.yaml \
    --set node.zone=east --set log.level=debug`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, _, err := c.Load(env)
			if err != nil {
				return err
			}
			return env.Program.RunAgent(cmd.Context(), env, cfg, command.RunOptions{Reload: c.Options(env), Await: wait})
		},
	}
	c.Add(cmd)
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until another agent with the same paths has ended, instead of failing")
	return cmd
}

func checkConfigCommand(env *command.Env) *cobra.Command {
	var c command.ConfigFlags
	cmd := &cobra.Command{
		Use:   "check-config [FILE]",
		Short: "Validate the agent's config",
		Long: `Reads the config in the same way as "nearside run", including the environment and --set, and prints
every fault with its file, line, and key to standard error.

The config of the unit nearside.service, /etc/nearside/agent.yaml, has a fault too if the unit may not
open the port of a listener, whatever the privileges of the caller.

The exit code is 65 if the config has a fault.`,
		Example: `  nearside check-config
  nearside check-config agent.yaml --set node.zone=east`,
		Args: command.Args(0, 1, "at most one FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				if c.File != "" {
					return command.Usagef("the file is given as an argument and with --config; use one of them")
				}
				c.File = args[0]
			}
			cfg, _, err := c.Load(env)
			if err != nil {
				return err
			}
			if file := c.Options(env).File; file == "" || file == config.DefaultConfigFile {
				if err := unit.This().CheckPorts(cmd.Context(), cfg).Err(); err != nil {
					return err
				}
			}
			text.Println(env.Stderr, "the config is valid")
			return nil
		},
	}
	c.Add(cmd)
	return cmd
}

func configCommand(env *command.Env) *cobra.Command {
	return command.Parent(&cobra.Command{
		Use:     "config",
		Short:   "Show the agent's config or its schema",
		Example: "  nearside config show --origins\n  nearside config schema > agent.schema.json",
	}, configShowCommand(env), &cobra.Command{
		Use:     "schema",
		Short:   "Print the JSON Schema of the config file",
		Example: "  nearside config schema > agent.schema.json",
		RunE: func(*cobra.Command, []string) error {
			_, err := text.Verbatim(env.Stdout).Write(config.Schema())
			return err
		},
	})
}

func configShowCommand(env *command.Env) *cobra.Command {
	var c command.ConfigFlags
	var withOrigins bool
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Print the effective config",
		Long: `Prints the config that "nearside run" would use, including defaults, in the form of a config file.
With --origins, a comment after each value gives its source: flag, env, file, or default.`,
		Example: `  nearside config show
  nearside config show --origins --config agent.yaml
  nearside config show --origins -o json`,
	}
	format := command.OutputFlag(cmd, "yaml", "json")
	c.Add(cmd)
	cmd.Flags().BoolVar(&withOrigins, "origins", false, "add the source of each value")
	cmd.RunE = func(*cobra.Command, []string) error {
		cfg, origins, err := c.Load(env)
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
			_, err = text.Verbatim(env.Stdout).Write(b)
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
			_, err = command.Printed(env, *format, struct {
				Config  map[string]any `json:"config"`
				Origins config.Origins `json:"origins"`
			}{doc, origins})
			return err
		}
		_, err = command.Printed(env, *format, doc)
		return err
	}
	return cmd
}
