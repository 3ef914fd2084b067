package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/nearside-mesh/nearside/agent/base/strict"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/cli/injectcmd"
	"github.com/nearside-mesh/nearside/agent/serve/cli/node"
	"github.com/nearside-mesh/nearside/agent/serve/cli/proxies"
	"github.com/nearside-mesh/nearside/agent/serve/cli/resources"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
	"github.com/nearside-mesh/nearside/agent/serve/cli/traffic"
	"github.com/nearside-mesh/nearside/agent/serve/cli/trustcmd"
	"github.com/nearside-mesh/nearside/agent/serve/cli/ui"
)

// Root returns the root command of nearside, with all commands below it.
func Root(env *command.Env) *cobra.Command {
	root := &cobra.Command{
		Use:   "nearside",
		Short: "Compute and serve Envoy configuration on the node",
		Long: `nearside computes Envoy configuration on the node from resources in Kuma's formats, and serves it
over xDS.

"nearside run" starts the agent. The other commands are clients of the agent, or work only on files.

Exit codes: 0 success, 1 failure, 2 negative result, 3 timeout, 64 usage error, 65 invalid input
document, 69 agent unreachable, 77 permission denied.`,
		Example: `  nearside run --config /etc/nearside/agent.yaml
  nearside validate -f resources/
  nearside get dataplanes
  nearside inspect dataplane web -o yaml`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          command.Group,
		RunE:          command.Help,

		DisableFlagsInUseLine: true,
	}
	root.Version = env.Build().Version // for --version
	env.Agent.Add(root)
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if err := env.Agent.Check(cmd, isLocal(cmd)); err != nil {
			return err
		}
		if f := cmd.Flags().Lookup("mesh"); f != nil && f.Changed && f.Value.String() == "" {
			return command.Usagef("--mesh is empty; give a mesh, or omit the flag for %q", cmp.Or(f.DefValue, "all"))
		}
		for _, name := range [...]string{"for", "type", "proxy-type", "output", "identity"} {
			if f := cmd.Flags().Lookup(name); f != nil {
				if c, ok := f.Value.(interface{ Check() error }); ok {
					if err := c.Check(); err != nil {
						return err
					}
				}
			}
		}
		return nil
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return command.Exit(command.ExitUsage, flagError(cmd, err))
	})
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(slices.Concat(resources.Commands(env), proxies.Commands(env), traffic.Commands(env),
		node.Commands(env), trustcmd.Commands(env), ui.Commands(env), injectcmd.Commands(env),
		[]*cobra.Command{versionCommand(env), completionCommand(env)})...)
	rejectArguments(root)
	groupCommands(root)
	return root
}

// localCommands work on files of the node, without the API or on the agent's own files.
const localCommands = "bootstrap check-config completion config hold import inject intercept keyring run schema " +
	"token validate version"

// isLocal reports whether a command is one of localCommands, or a subcommand of one.
func isLocal(cmd *cobra.Command) bool {
	for ; cmd.HasParent(); cmd = cmd.Parent() {
		if !cmd.Parent().HasParent() {
			return slices.Contains(strings.Fields(localCommands), cmd.Name())
		}
	}
	return false
}

// rejectArguments makes every command without an argument check refuse arguments.
func rejectArguments(cmd *cobra.Command) {
	if cmd.Args == nil {
		cmd.Args = command.Args(0, 0, "no arguments")
	}
	for _, c := range cmd.Commands() {
		rejectArguments(c)
	}
}

// flagError explains an error of the flag parser, and lists the allowed values. It names the flag
// as it was given.
func flagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	var without *pflag.ValueRequiredError
	var invalid *pflag.InvalidValueError
	var malformed *pflag.InvalidSyntaxError
	switch {
	// the flag belongs to the misspelled subcommand
	case cmd.HasAvailableSubCommands() && len(cmd.Flags().Args()) > 0:
		return command.Group(cmd, cmd.Flags().Args())
	case errors.As(err, &unknown):
		return unknownFlag(cmd, unknown)
	case errors.As(err, &without):
		return fmt.Errorf("%s needs a value: %s", shownFlag(without.GetSpecifiedName(), without.GetSpecifiedShortnames()),
			without.GetFlag().Usage)
	case errors.As(err, &malformed):
		return fmt.Errorf("%q is not a flag; give --NAME or --NAME=VALUE", malformed.GetSpecifiedFlag())
	case errors.As(err, &invalid):
		want, known := map[string]string{"duration": "a duration with a unit, such as 30s, 5m, or 2h",
			"bool": "true or false",
			"int":  "a whole number", "uint": "a whole number, 0 or more", "uint32": "a whole number, 0 or more",
			"uint64": "a whole number, 0 or more"}[invalid.GetFlag().Value.Type()]
		if !known {
			want = "a value as in its help"
		}
		return fmt.Errorf("--%s %q is invalid; give %s", invalid.GetFlag().Name, invalid.GetValue(), want)
	}
	return err
}

// shownFlag returns a flag as it was given: one of several letters, or a name.
func shownFlag(name, letters string) string {
	if letters != "" {
		return "-" + name
	}
	return "--" + name
}

// unknownFlag suggests a flag of a similar name.
func unknownFlag(cmd *cobra.Command, unknown *pflag.NotExistError) error {
	name := unknown.GetSpecifiedName()
	shown, remedy := shownFlag(name, unknown.GetSpecifiedShortnames()), ""
	switch {
	case unknown.GetSpecifiedShortnames() == "":
		var flags []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { flags = append(flags, f.Name) })
		if near := strict.Nearest(name, flags); near != "" {
			remedy = fmt.Sprintf("; did you mean --%s?", near)
		}
	case name == "n" && cmd.Flags().Lookup("mesh") != nil:
		remedy = "; use -m for the mesh"
	}
	return fmt.Errorf("there is no flag %s in %s%s", shown, cmd.CommandPath(), remedy)
}

func versionCommand(env *command.Env) *cobra.Command {
	return command.Asking(env, &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Long: `Prints the version, the commit of the sources, the Go version, the platform, and the newest version
of Kuma whose resources nearside reads.`,
		Example: "  nearside version\n  nearside version -o json",
	}, command.AsText, func(w io.Writer, b command.BuildInfo) {
		commit := ""
		if b.Revision != "" {
			commit = "commit " + text.Short(b.Revision, 12) + ", "
		}
		text.Printf(w, "%s %s (%s%s, %s; resources of Kuma up to %s)\n",
			b.Product, b.Version, commit, b.Go, b.Platform, b.Schema)
	}, func(context.Context, []string) (command.BuildInfo, error) { return env.Build(), nil })
}
