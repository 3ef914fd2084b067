package proxies

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/base/strict"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
	"github.com/nearside-mesh/nearside/agent/serve/client"
)

func proxyCommand(env *command.Env) *cobra.Command {
	return command.Parent(&cobra.Command{
		Use:   "proxy",
		Short: "Query the Envoy of a proxy",
		Long: `Queries an Envoy over its admin socket, through the agent that serves it. This works only if the
socket is where "nearside bootstrap" puts it, and if the process behind it is the one that is
connected to the agent. Secrets are removed from the output.`,
		Example: "  nearside proxy stats web --filter upstream_cx_none_healthy\n  nearside proxy config web -o yaml",
	}, proxyTextCommand(env, client.EnvoyStats, "Print the statistics of an Envoy", "name and value"),
		proxyTextCommand(env, client.EnvoyClusters, "Print the clusters of an Envoy with their endpoints",
			"cluster, endpoint, and property"),
		proxyConfigCommand(env), proxyLogsCommand(env))
}

// target is the Envoy that a command queries.
type target struct {
	plural, mesh, name string
}

// proxyFlags adds the flags that select a proxy, and returns a function that reads them.
func proxyFlags(env *command.Env, cmd *cobra.Command) func(ctx context.Context, args []string) (target, error) {
	command.MeshFlag(env, cmd)
	typ := ""
	command.ChoiceFlag(cmd, &typ, "proxy-type", "", "proxy type: ", command.ProxyTypes()...)
	cmd.Args = command.Args(1, 1, "the NAME of a dataplane, or of a zone proxy with --proxy-type")
	cmd.ValidArgsFunction = command.CompleteNamesOf(env, "dataplanes")
	return func(ctx context.Context, args []string) (target, error) {
		zone := command.ZoneNodeID(args[0])
		switch {
		case typ != command.Dataplane:
			if zone != node.ProxyDataplane && zone != node.Type(typ) {
				return target{}, command.Usagef("%s is not for --proxy-type %s; give the proxy type of the name", args[0], typ)
			}
			zone = node.Type(typ)
		case zone == node.ProxyDataplane:
			name, err := command.DataplaneName(ctx, env, nil, args[0])
			return target{"dataplanes", env.Mesh, name}, err
		}
		if cmd.Flags().Changed("mesh") {
			return target{}, command.Usagef("--mesh cannot be used with --proxy-type %s, which covers all meshes", zone)
		}
		name, err := command.ZoneProxy(env, zone, args[0])
		return target{"zone" + string(zone) + "es", "", name}, err
	}
}

func proxyTextCommand(env *command.Env, what, short, line string) *cobra.Command {
	filter := ""
	cmd := &cobra.Command{
		Use:   what + " NAME",
		Short: short,
		Long: short + " in the format of its admin interface: " + line +
			", one per line. --filter prints only the lines that match a regular expression.",
		Example: "  nearside proxy " + what + " web\n  nearside proxy " + what +
			" web -m shop --filter '^backend'\n  nearside proxy " + what + " egress-1 --proxy-type egress",
	}
	find := proxyFlags(env, cmd)
	cmd.Flags().StringVar(&filter, "filter", "", "print only lines that match this regular expression")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		match, err := regexp.Compile(filter)
		if err != nil {
			return command.Usagef("--filter %q is not a regular expression: %v", filter, err)
		}
		x, err := find(cmd.Context(), args)
		if err != nil {
			return err
		}
		body, err := env.Client().Envoy(cmd.Context(), x.plural, x.mesh, x.name, what, nil)
		if err != nil {
			return err
		}
		for l := range strings.Lines(string(body)) {
			if l = strings.TrimSuffix(l, "\n"); match.MatchString(l) {
				text.Println(env.Stdout, l)
			}
		}
		return nil
	}
	return cmd
}

func proxyConfigCommand(env *command.Env) *cobra.Command {
	endpoints := false
	cmd := &cobra.Command{
		Use:   "config NAME",
		Short: "Print the config that an Envoy has",
		Long: `Prints the config dump of an Envoy: its bootstrap and the config from the agent, without private
keys and other secrets. "nearside inspect dataplane NAME --type=config" prints the config that the
agent has for it.`,
		Example: "  nearside proxy config web\n  nearside proxy config web --endpoints -o yaml\n" +
			"  nearside proxy config web -o 'jsonpath={.configs[*].dynamicListeners[*].name}'",
	}
	find := proxyFlags(env, cmd)
	cmd.Flags().BoolVar(&endpoints, "endpoints", false, "include the endpoints of clusters")
	format := command.OutputFlag(cmd, "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		x, err := find(cmd.Context(), args)
		if err != nil {
			return err
		}
		query := url.Values{}
		if endpoints {
			query.Set("include_eds", "true")
		}
		body, err := env.Client().Envoy(cmd.Context(), x.plural, x.mesh, x.name, client.EnvoyConfig, query)
		if err != nil {
			return err
		}
		_, err = command.Printed(env, *format, json.RawMessage(body))
		return err
	}
	return cmd
}

func proxyLogsCommand(env *command.Env) *cobra.Command {
	var levels []string
	cmd := &cobra.Command{
		Use:   "logs NAME",
		Short: "Print or change the log levels of an Envoy",
		Long: `Prints the level of each logger of an Envoy, or changes levels: --level debug sets all loggers, and
--level upstream=debug sets one. The log stays where the Envoy writes it, by default on its standard
error. After a restart, the Envoy uses the levels of its command line.

The levels are ` + strings.Join(api.LoggerLevels, ", ") + `. Changes require the verb update on the Dataplane.`,
		Example: "  nearside proxy logs web\n  nearside proxy logs web --level upstream=debug --level router=debug\n" +
			"  nearside proxy logs web --level info",
	}
	find := proxyFlags(env, cmd)
	cmd.Flags().StringArrayVar(&levels, "level", nil, "LEVEL, or LOGGER=LEVEL; repeatable")
	format := command.OutputFlag(cmd, "table", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		set, err := loggerLevels(levels)
		if err != nil {
			return err
		}
		x, err := find(cmd.Context(), args)
		if err != nil {
			return err
		}
		return command.Show(env, *format, func(w io.Writer, l *api.Loggers) {
			text.Rows(w, slices.Sorted(maps.Keys(l.Levels)), func(name string) []string {
				return []string{name, l.Levels[name]}
			}, "LOGGER", "LEVEL")
		})(loggers(cmd.Context(), env, x, set))
	}
	return cmd
}

// loggers reads and sets log levels. An unknown logger is an error.
func loggers(ctx context.Context, env *command.Env, x target, set map[string]string) (*api.Loggers, error) {
	c := env.Client()
	if len(set) > 0 {
		now, err := c.EnvoyLoggers(ctx, x.plural, x.mesh, x.name, nil)
		if err != nil {
			return nil, err
		}
		for _, name := range slices.Sorted(maps.Keys(set)) {
			if _, ok := now.Levels[name]; !ok && name != "" {
				near := ""
				if n := strict.Nearest(name, slices.Sorted(maps.Keys(now.Levels))); n != "" {
					near = fmt.Sprintf("; did you mean %s?", n)
				}
				return nil, command.Usagef("the Envoy has no logger %q%s; nearside proxy logs %s lists its loggers",
					name, near, x.name)
			}
		}
	}
	return c.EnvoyLoggers(ctx, x.plural, x.mesh, x.name, set)
}

// loggerLevels parses --level.
func loggerLevels(list []string) (map[string]string, error) {
	set := map[string]string{}
	for _, l := range list {
		name, level, one := strings.Cut(l, "=")
		if !one {
			name, level = "", name
		}
		if one && name == "" || !slices.Contains(api.LoggerLevels, level) {
			return nil, command.Usagef("--level %q is invalid; give LEVEL or LOGGER=LEVEL, with a level of %s",
				l, strings.Join(api.LoggerLevels, ", "))
		}
		set[name] = level
	}
	return set, nil
}
