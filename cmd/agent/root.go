package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/nearside-mesh/nearside/agent/answer/offline"
	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/host/intercept"
	"github.com/nearside-mesh/nearside/agent/serve/client"
)

// app is one invocation of the program.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	env            []string
	socket         string     // --socket
	mesh           string     // --mesh
	named          *reference // what the command line names; nil: nothing
}

// checkedWriter remembers that the data did not all go out, so that no command has to ask at every
// line.
type checkedWriter struct {
	w   io.Writer
	err error // the first
}

func (c *checkedWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	if err != nil && c.err == nil {
		c.err = err
	}
	return n, err
}

// Main runs one command line and returns its exit code. Tests call it as main does.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer, env []string) int {
	out := &checkedWriter{w: stdout}
	a := &app{stdin: stdin, env: env}
	stdout, stderr = textWriter{out, toTerminal(textWriter{w: out}) && a.colors()},
		textWriter{stderr, terminal(textWriter{w: stderr}) && a.colors()}
	a.stdout, a.stderr = stdout, stderr
	root := a.root()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(context.Background())
	var exit *exitError
	if out.err != nil && (err == nil || errors.As(err, &exit) && exit.err == nil) {
		err = out.err // an answer that the caller does not have whole is none
	}
	if err == nil {
		return exitOK
	}
	if errors.As(err, &exit) && exit.code == exitUsage {
		exit.command = cmd.CommandPath()
	}
	report(stderr, err)
	if hint := a.nearby(err); hint != "" {
		printf(stderr, "hint: %s\n", hint)
	}
	return exitCode(err)
}

// getenv returns a variable of the invocation, the last of its name.
func (a *app) getenv(name string) string {
	for i := len(a.env) - 1; i >= 0; i-- {
		if v, ok := strings.CutPrefix(a.env[i], name+"="); ok {
			return v
		}
	}
	return ""
}

// colors says whether the environment wants colours on a terminal (https://no-color.org).
func (a *app) colors() bool { return a.getenv("NO_COLOR") == "" && a.getenv("TERM") != "dumb" }

// client returns a client of the agent. It connects at the first call.
func (a *app) client() *client.Client {
	return client.New(client.FindSocket(a.socket, a.getenv, os.Geteuid()), 0)
}

// quick is a client for completion and probes, which must not keep anyone waiting.
func (a *app) quick(timeout time.Duration) *client.Client {
	return client.New(client.FindSocket(a.socket, a.getenv, os.Geteuid()), timeout)
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "nearside",
		Short: "Service mesh from the node's side: the agent and its command line",
		Long: `nearside computes Envoy configuration on the node, from resources in Kuma's formats, and serves it over xDS.

"nearside run" is the agent. All other commands are its clients, or work on files alone.
Exit codes: 0 success, 1 failed, 2 negative result, 3 a wait timed out, 64 usage,
65 invalid input document, 69 the agent is not reachable, 77 no permission.`,
		Example: `  nearside run --config /etc/nearside/agent.yaml
  nearside validate -f resources/
  nearside get dataplanes
  nearside inspect dataplane web -o yaml`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          group,
		RunE:          help,
	}
	root.Version = buildVersion().Version // for --version
	root.PersistentFlags().StringVar(&a.socket, "socket", "",
		"unix socket of the agent (default: NEARSIDE_SOCKET, else "+client.DefaultSocket+")")
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if f := cmd.Flags().Lookup("mesh"); f != nil && f.Changed && f.Value.String() == "" {
			return usagef("--mesh is empty; name a mesh, or leave it out for %q", cmp.Or(f.DefValue, "all"))
		}
		for _, name := range [...]string{"for", "type", "proxy-type", "output"} {
			if f := cmd.Flags().Lookup(name); f != nil {
				if c, ok := f.Value.(interface{ check() error }); ok {
					if err := c.check(); err != nil {
						return err
					}
				}
			}
		}
		return nil
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return &exitError{err: flagError(cmd, err), code: exitUsage}
	})
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(
		a.runCommand(), a.checkConfigCommand(), a.configCommand(), a.bootstrapCommand(),
		a.validateCommand(), a.applyCommand(), a.deleteCommand(), a.getCommand(), a.apiResourcesCommand(), a.schemaCommand(),
		a.editCommand(), a.inspectCommand(),
		a.diffCommand(), a.explainCommand(), a.passthroughCommand(), a.reachableCommand(), a.migrateCommand(),
		a.historyCommand(), a.rollbackCommand(),
		a.logsCommand(), a.proxyCommand(), a.dnsCommand(), a.accessCommand(), a.tokenCommand(),
		a.interceptCommand(), a.holdCommand(), a.waitCommand(), a.statusCommand(), a.membersCommand(), a.joinCommand(),
		a.leaveCommand(), a.forgetCommand(), a.keyringCommand(), a.conflictsCommand(), a.checkCommand(),
		a.healthcheckCommand(), a.debugCommand(), a.versionCommand(), a.completionCommand(),
	)
	return root
}

// flagError says what is wrong with a flag, and what is possible.
func flagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	var invalid *pflag.InvalidValueError
	switch {
	case cmd.HasAvailableSubCommands() && len(cmd.Flags().Args()) > 0: // the flag is one of the command that was meant
		return group(cmd, cmd.Flags().Args())
	case errors.As(err, &unknown) && len(unknown.GetSpecifiedShortnames()) > 0:
		text := fmt.Sprintf("there is no flag -%s", unknown.GetSpecifiedName())
		if unknown.GetSpecifiedName() == "n" && cmd.Flags().Lookup("mesh") != nil {
			text += "; a mesh is named with -m"
		}
		return errors.New(text)
	case errors.As(err, &unknown):
		var flags []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { flags = append(flags, f.Name) })
		if near := client.Nearest(unknown.GetSpecifiedName(), flags); near != "" {
			return fmt.Errorf("%w; did you mean --%s?", err, near)
		}
	case errors.As(err, &invalid):
		what, known := map[string]string{"duration": "a duration with its unit, such as 30s, 5m or 2h",
			"bool": "true or false",
			"int":  "a whole number", "uint": "a whole number, 0 or more", "uint32": "a whole number, 0 or more",
			"uint64": "a whole number, 0 or more"}[invalid.GetFlag().Value.Type()]
		if known {
			return fmt.Errorf("--%s %q is not possible; give %s", invalid.GetFlag().Name, invalid.GetValue(), what)
		}
	}
	return err
}

// group is for commands that only hold others.
func group(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	near := client.Nearest(args[0], names)
	for _, c := range cmd.Commands() {
		if slices.Contains(c.SuggestFor, args[0]) {
			near = c.Name() // what other tools call it
		}
	}
	if more := cmd.SuggestionsFor(args[0]); near == "" && len(more) > 0 {
		near = more[0]
	}
	switch {
	case near != "":
		return usagef("there is no command %q in %s; did you mean %q?", args[0], cmd.CommandPath(), near)
	case len(names) > mostListed:
		return usagef("there is no command %q in %s, whose help lists them", args[0], cmd.CommandPath())
	}
	return usagef("there is no command %q in %s; one of %s", args[0], cmd.CommandPath(), strings.Join(names, ", "))
}

// mostListed is how many names the answer to a mistake lists.
const mostListed = 10

func help(cmd *cobra.Command, _ []string) error { return cmd.Help() }

// args checks the number of arguments, which names lists.
func args(least, most int, names string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most {
			return usagef("%s takes %s; %d given", cmd.CommandPath(), names, len(args))
		}
		return nil
	}
}

// meshFlag adds -m.
func (a *app) meshFlag(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&a.mesh, "mesh", "m", "default", "mesh")
	_ = cmd.RegisterFlagCompletionFunc("mesh", a.completeMesh) // fails only for a flag that does not exist
}

// Exit codes; those from 64 on are sysexits(3).
const (
	exitOK          = 0
	exitFailed      = 1
	exitNo          = 2 // negative result: not selected, denied, not ready, problems found
	exitTimeout     = 3 // a wait timed out, or an agent that is there has not answered
	exitUsage       = 64
	exitInvalid     = 65 // an input document
	exitUnreachable = 69
	exitPermission  = 77
)

// exitError ends a command with an exit code, silently where the output has said everything.
type exitError struct {
	err     error // nil: silent
	code    int
	command string // whose help to look at; ""
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// silent ends a command whose output has said everything.
func silent(code int) error { return &exitError{code: code} }

// usagef is the error of a command line that makes no sense.
func usagef(format string, args ...any) error {
	return &exitError{err: fmt.Errorf(format, args...), code: exitUsage}
}

// exitCode is the one place where errors become exit codes.
func exitCode(err error) int {
	var (
		exit        *exitError
		faults      offline.Faults
		unreachable *client.UnreachableError
		unanswered  *client.UnansweredError
		permission  *client.PermissionError
		problem     *client.Problem
		needs       *intercept.NeedsError
	)
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &exit):
		return exit.code
	case errors.As(err, &faults):
		return exitInvalid
	case errors.As(err, &unreachable):
		return exitUnreachable
	case errors.As(err, &unanswered):
		return exitTimeout
	case errors.As(err, &permission), errors.As(err, &needs), errors.Is(err, fs.ErrPermission):
		return exitPermission
	case errors.As(err, &problem) && (problem.Type == client.ProblemDocument || problem.Type == client.ProblemWouldBreak ||
		problem.Type == client.ProblemTooLarge):
		return exitInvalid
	}
	return exitFailed
}

// report tells the user what went wrong and what to do next.
func report(w io.Writer, err error) {
	var (
		exit   *exitError
		faults offline.Faults
		hinted interface{ Hint() string }
	)
	switch {
	case errors.As(err, &exit) && exit.err == nil:
	case errors.As(err, &faults):
		for _, f := range faults {
			printLine(w, f)
		}
	default:
		printf(w, "error: %s\n", errorText(err))
	}
	if exit != nil && exit.command != "" {
		printf(w, "hint: see %s --help\n", exit.command)
	}
	if errors.As(err, &hinted) {
		printf(w, "hint: %s\n", hinted.Hint())
	}
}

// errorText is the message of an error, which may list several things: no line of it begins as
// those of the command do.
func errorText(err error) layout {
	lines := each(strings.Split(strings.TrimSuffix(err.Error(), "\n"), "\n"), clip.Printable)
	for i := range lines {
		if i > 0 && !strings.HasPrefix(lines[i], "  ") {
			lines[i] = "  " + lines[i]
		}
	}
	return layout(strings.Join(lines, "\n"))
}
