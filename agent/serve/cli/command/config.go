package command

import (
	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/host/config"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
)

// ConfigFlags are --config and --set.
type ConfigFlags struct {
	File string
	set  []string
}

func (c *ConfigFlags) Add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.File, "config", "",
		"config file (default: NEARSIDE_CONFIG, else "+config.DefaultConfigFile+" where it exists)")
	cmd.Flags().StringArrayVar(&c.set, "set", nil, "key=value that takes precedence over file and environment; repeatable")
}

func (c *ConfigFlags) Options(env *Env) config.LoadOptions {
	file := c.File
	if file == "" {
		file = env.Getenv("NEARSIDE_CONFIG")
	}
	return config.LoadOptions{File: file, Env: env.Vars, Set: c.set,
		Warn: func(line string) { text.Println(env.Stderr, "warning: "+line) }}
}

// Load reads and checks the config.
func (c *ConfigFlags) Load(env *Env) (*config.Config, config.Origins, error) {
	cfg, origins, faults := config.Load(c.Options(env))
	if len(faults) == 0 {
		faults = env.Program.CheckConfig(cfg)
	}
	if err := faults.Err(); err != nil {
		return nil, nil, err
	}
	return cfg, origins, nil
}
