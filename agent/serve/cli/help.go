package cli

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
)

// Help wraps lines at the width of the terminal, within these limits.
const minHelpWidth, maxHelpWidth = 60, 100

// helpWidth returns the columns of help: those of COLUMNS or of the terminal, or maxHelpWidth.
func helpWidth(env *command.Env, stdout io.Writer) int {
	n, _ := strconv.Atoi(env.Getenv("COLUMNS"))
	if f, ok := stdout.(*os.File); ok && n <= 0 {
		if size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ); err == nil {
			n = int(size.Col)
		}
	}
	return min(max(cmp.Or(max(n, 0), maxHelpWidth), minHelpWidth), maxHelpWidth)
}

// wrapHelp makes root and its subcommands wrap their help. Unlike a usage template, a function
// keeps text/template out of the binary.
func wrapHelp(root *cobra.Command, width int) {
	root.SetHelpFunc(func(c *cobra.Command, _ []string) {
		fmt.Fprintf(c.OutOrStdout(), "%s\n\n%s", wrap(cmp.Or(c.Long, c.Short+"."), width), c.UsageString())
	})
	root.SetUsageFunc(func(c *cobra.Command) error {
		writeUsage(c.OutOrStderr(), c, width)
		return nil
	})
}

// wrap breaks the lines of a text. Blank lines separate paragraphs, and indented lines stay.
func wrap(text string, width int) string {
	var out []string
	column := 0 // length of the last line; 0 begins a new one
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(line, "  ") {
			out, column = append(out, strings.TrimRight(line, "\n")), 0
			continue
		}
		for _, word := range words {
			if n := len([]rune(word)); column > 0 && column+1+n <= width {
				out[len(out)-1] += " " + word
				column += 1 + n
			} else {
				out, column = append(out, word), n
			}
		}
	}
	return strings.Join(out, "\n")
}

// writeUsage writes the usage of a command: its forms, examples, subcommands by group, and flags.
func writeUsage(w io.Writer, c *cobra.Command, width int) {
	fmt.Fprint(w, "Usage:\n")
	if c.HasAvailableSubCommands() {
		fmt.Fprintf(w, "  %s COMMAND\n", c.CommandPath())
	}
	if !c.HasAvailableSubCommands() || !c.DisableFlagsInUseLine { // see [command.Parent]
		fmt.Fprintf(w, "  %s\n", c.UseLine())
	}
	if c.HasExample() {
		fmt.Fprintf(w, "\nExamples:\n%s\n", c.Example)
	}
	groups := append(slices.Clone(c.Groups()), &cobra.Group{Title: "Commands:"})
	for _, g := range groups {
		title := "\n" + g.Title + "\n"
		for _, sub := range c.Commands() {
			if sub.GroupID == g.ID && sub.IsAvailableCommand() {
				fmt.Fprintf(w, "%s  %-*s %s\n", title, sub.NamePadding(), sub.Name(), sub.Short)
				title = ""
			}
		}
	}
	const slop = 5 // pflag lets the last line of a flag exceed the width by this
	if c.HasAvailableLocalFlags() {
		fmt.Fprintf(w, "\nFlags:\n%s", c.LocalFlags().FlagUsagesWrapped(width-slop))
	}
	if c.HasAvailableInheritedFlags() {
		fmt.Fprintf(w, "\nGlobal Flags:\n%s", c.InheritedFlags().FlagUsagesWrapped(width-slop))
	}
	if c.HasAvailableSubCommands() {
		fmt.Fprintf(w, "\n%s COMMAND --help describes a command.\n", c.CommandPath())
	}
}

// commandGroups are the groups of commands in the help of nearside.
var commandGroups = []struct{ title, commands string }{
	{"Mesh and resources:", "api-resources apply conflicts delete diff edit get history import migrate rollback schema " +
		"validate wait"},
	{"Proxies and traffic:", "bootstrap drain explain inject inspect passthrough proxy reachable"},
	{"Logs:", "logs"},
	{"Node and agent:", "check check-config completion config debug dns healthcheck hold intercept run status ui version"},
	{"Gossip pool:", "forget join keyring keys leave members pool trust"},
	{"Access and security:", "access token"},
}

// groupCommands assigns the commands of root to groups.
func groupCommands(root *cobra.Command) {
	for _, g := range commandGroups {
		root.AddGroup(&cobra.Group{ID: g.title, Title: g.title})
		for _, c := range root.Commands() {
			if slices.Contains(strings.Fields(g.commands), c.Name()) {
				c.GroupID = g.title
			}
		}
	}
}
