package command

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/base/jsonpath"
	"github.com/nearside-mesh/nearside/agent/base/strict"
	"github.com/nearside-mesh/nearside/agent/host/config"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
)

// Dataplane is the proxy type of a Dataplane.
const Dataplane = "dataplane"

// ProxyTypes returns the values of --proxy-type.
func ProxyTypes() []string {
	return []string{Dataplane, string(node.ProxyEgress), string(node.ProxyIngress)}
}

// choice is a flag with a fixed set of values. [choice.Check] runs before the command.
type choice struct {
	value  *string
	flag   string
	values []string
}

func (c *choice) String() string     { return *c.value }
func (c *choice) Set(s string) error { *c.value = s; return nil }
func (c *choice) Type() string       { return "string" }

func (c *choice) Check() error {
	if !slices.Contains(c.values, *c.value) {
		near := ""
		if n := strict.Nearest(*c.value, c.values); n != "" {
			near = "; did you mean " + n + "?"
		}
		return Usagef("%s %q is invalid; use one of %s%s", c.flag, *c.value, strings.Join(c.values, ", "), near)
	}
	return nil
}

// outputFormats are the formats of every command with -o. A command without a table or a wide table
// prints its output for people instead; "text" is an alias for that.
var outputFormats = []string{"table", "wide", "json", "yaml"}

// JsonPath is the prefix of a template; see [jsonpath.Template].
const JsonPath = "jsonpath="

// outputValue is the flag -o.
type outputValue struct {
	choice
	first string // format for people
}

// Common formats of commands.
var (
	AsTable = []string{"table", "json", "yaml"}
	AsText  = []string{"text", "json", "yaml"}
)

// OutputFlag adds -o with the formats of a command; the first one is the default. After parsing,
// the result is one of these, "json", "yaml", or a jsonpath.
func OutputFlag(cmd *cobra.Command, formats ...string) *string {
	to := new(string)
	o := &outputValue{choice{to, "-o", formats}, formats[0]}
	*to = formats[0]
	cmd.Flags().VarP(o, "output", "o", "format: "+strings.Join(o.all(), ", ")+", "+JsonPath+"…")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(append(o.all(), JsonPath),
		cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveNoSpace))
	return to
}

// all returns the formats of the command, its default first, and then the aliases.
func (o *outputValue) all() []string {
	all := slices.Clone(o.values)
	for _, f := range outputFormats {
		if !slices.Contains(all, f) {
			all = append(all, f)
		}
	}
	return all
}

// Check validates the format and replaces an alias.
func (o *outputValue) Check() error {
	switch f := *o.value; {
	case slices.Contains(o.values, f), f == "json", f == "yaml":
		return nil
	case f == "text", f == "table", f == "wide":
		*o.value = o.first
		if i := slices.IndexFunc(o.values, func(v string) bool { return v == "text" || v == "table" }); i >= 0 {
			*o.value = o.values[i]
		}
		return nil
	case strings.HasPrefix(f, JsonPath):
		if _, err := jsonpath.Parse(strings.TrimPrefix(f, JsonPath)); err != nil {
			return Usagef("-o %s: %v; use the syntax of kubectl: -o 'jsonpath={.items[*].name}'", JsonPath, err)
		}
		return nil
	}
	return Usagef("-o %q is invalid; use one of %s, %s…", *o.value, strings.Join(o.all(), ", "), JsonPath)
}

// IsDocument reports whether programs read a format.
func IsDocument(format string) bool {
	return format == "json" || format == "yaml" || strings.HasPrefix(format, JsonPath)
}

// ChoiceFlag adds a flag with a fixed set of values; the first one is the default.
func ChoiceFlag(cmd *cobra.Command, to *string, name, short, usage string, values ...string) {
	*to = values[0]
	c := &choice{to, "--" + name, values}
	if short != "" {
		c.flag = "-" + short
	}
	cmd.Flags().VarP(c, name, short, usage+strings.Join(values, ", "))
	_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// Group checks the arguments of a command that only has subcommands.
func Group(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	near := strict.Nearest(args[0], names)
	for _, c := range cmd.Commands() {
		if slices.Contains(c.SuggestFor, args[0]) {
			near = c.Name() // name in other tools
		}
	}
	if more := cmd.SuggestionsFor(args[0]); near == "" && len(more) > 0 {
		near = more[0]
	}
	switch {
	case near != "":
		return Usagef("there is no command %q in %s; did you mean %q?", args[0], cmd.CommandPath(), near)
	case len(names) > mostListed:
		return Usagef("there is no command %q in %s; its help lists the commands", args[0], cmd.CommandPath())
	}
	return Usagef("there is no command %q in %s; use one of %s", args[0], cmd.CommandPath(), strings.Join(names, ", "))
}

// mostListed bounds the commands that an error lists.
const mostListed = 10

// Parent returns a command that only has subcommands. Its help has no usage line without one.
func Parent(cmd *cobra.Command, children ...*cobra.Command) *cobra.Command {
	cmd.RunE, cmd.DisableFlagsInUseLine = Help, true
	if cmd.Args == nil {
		cmd.Args = Group
	}
	cmd.AddCommand(children...)
	return cmd
}

// Help prints the help of a command.
func Help(cmd *cobra.Command, _ []string) error { return cmd.Help() }

// Args checks the number of arguments. names describes them in errors.
func Args(least, most int, names string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most {
			return Usagef("%s takes %s; %d given", cmd.CommandPath(), names, len(args))
		}
		return nil
	}
}

// ResourceFlags adds -m, and completes TYPE and NAME.
func ResourceFlags(env *Env, cmd *cobra.Command) {
	cmd.ValidArgsFunction = CompleteTypeAndName(env)
	MeshFlag(env, cmd)
}

// ProxyTypeFlag adds --proxy-type. The command validates its value.
func ProxyTypeFlag(cmd *cobra.Command, to *string, usage string) {
	cmd.Flags().StringVar(to, "proxy-type", Dataplane, usage+strings.Join(ProxyTypes(), ", "))
	_ = cmd.RegisterFlagCompletionFunc("proxy-type",
		cobra.FixedCompletions(ProxyTypes(), cobra.ShellCompDirectiveNoFileComp))
}

// ConfigFlags are --config and --set.
type ConfigFlags struct {
	File   string
	Logged bool // the caller logs the warnings, so they are not printed
	set    []string
}

func (c *ConfigFlags) Add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.File, "config", "",
		"config file (default: NEARSIDE_CONFIG, else "+config.DefaultConfigFile+" if it exists)")
	cmd.Flags().StringArrayVar(&c.set, "set", nil, "key=value that overrides the file and the environment; repeatable")
}

func (c *ConfigFlags) Options(env *Env) config.LoadOptions {
	file := c.File
	if file == "" {
		file = env.Getenv("NEARSIDE_CONFIG")
	}
	o := config.LoadOptions{File: file, Env: env.Vars, Set: c.set}
	if !c.Logged {
		o.Warn = func(line string) { text.Println(env.Stderr, "warning: "+line) }
	}
	return o
}

// Load reads and validates the config.
func (c *ConfigFlags) Load(env *Env) (*config.Config, config.Origins, error) {
	cfg, origins, faults := config.Load(c.Options(env))
	if len(faults) == 0 {
		faults = env.Program.CheckConfig(cfg)
	}
	if len(faults) > 0 {
		return nil, nil, &configError{faults}
	}
	return cfg, origins, nil
}

// configError has the faults of a config. [Report] prints each as an error.
type configError struct{ faults resource.Faults }

func (e *configError) Error() string { return e.faults.Error() }
func (e *configError) Unwrap() error { return e.faults }
