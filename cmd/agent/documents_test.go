package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/serve/cli"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
)

// shown is a command in a document.
type shown struct {
	at    string // file and line
	text  string
	whole bool // the whole code block, which can be run unchanged
}

var inline = regexp.MustCompile("`((?:bin/)?nearside [^`]*)`")

// shownCommands finds the commands in sh, bash, and console blocks, and in inline code.
func shownCommands(name, text string) (out []shown) {
	fenced, code, console, heredoc := false, false, false, ""
	for i, line := range strings.Split(text, "\n") {
		at := name + ":" + strconv.Itoa(i+1)
		switch trimmed := strings.TrimSpace(line); {
		case heredoc != "":
			if trimmed == heredoc {
				heredoc = ""
			}
		case strings.HasPrefix(trimmed, "```"):
			fenced = !fenced
			language := strings.TrimPrefix(trimmed, "```")
			console = language == "console"
			code = fenced && (console || language == "sh" || language == "bash")
		case code:
			if console && !strings.HasPrefix(line, "$ ") {
				continue // output
			}
			line = strings.TrimPrefix(line, "$ ")
			if _, end, ok := strings.Cut(line, "<<'"); ok {
				heredoc = strings.TrimSuffix(end, "'")
			}
			if strings.HasPrefix(line, "nearside ") || strings.HasPrefix(line, "bin/nearside ") {
				out = append(out, shown{at, line, true})
			}
		case !fenced:
			for _, m := range inline.FindAllStringSubmatch(line, -1) {
				out = append(out, shown{at, m[1], false})
			}
		}
	}
	return out
}

// shellWords splits a command line like a shell, up to the first operator. Variables and
// substitutions are not expanded.
func shellWords(line string) (words []string) {
	var quote rune
	word, any, depth := "", false, 0
	end := func() {
		if any {
			words = append(words, word)
		}
		word, any = "", false
	}
	for _, r := range line {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0 || depth > 0:
			word += string(r)
			switch r {
			case '(':
				depth++
			case ')':
				depth--
			}
		case r == '\'' || r == '"':
			quote, any = r, true
		case r == '(' && strings.HasSuffix(word, "$"):
			word, depth = word+"(", 1
		case r == ' ':
			end()
		case strings.ContainsRune("|;&><#", r):
			end()
			return words
		default:
			word, any = word+string(r), true
		}
	}
	end()
	return words
}

// accepts parses a command line like the program, without running it.
func accepts(line string) error {
	root := cli.Root(&command.Env{})
	cmd, rest, err := root.Find(shellWords(line)[1:])
	if err != nil {
		return err
	}
	cmd.InitDefaultHelpFlag()
	cmd.InitDefaultVersionFlag()
	if err := cmd.ParseFlags(rest); err != nil {
		return err
	}
	if err := cmd.ValidateArgs(cmd.Flags().Args()); err != nil {
		return err
	}
	if err := cmd.ValidateRequiredFlags(); err != nil {
		return err
	}
	if !cmd.HasParent() && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
		return errors.New("there is no such command")
	}
	return root.PersistentPreRunE(cmd, nil)
}

// exists checks that a command with these flags exists. The line is a synopsis with placeholders
// and alternatives.
func exists(root *cobra.Command, line string) error {
	cmd := root
	for i, word := range strings.Fields(strings.NewReplacer("[", " ", "]", " ", "…", " ", "|", " ", "\\", " ").
		Replace(line))[1:] {
		if flag, isFlag := strings.CutPrefix(word, "--"); isFlag {
			flag, _, _ = strings.Cut(flag, "=")
			if flag != "help" && flag != "version" && cmd.Flags().Lookup(flag) == nil &&
				root.PersistentFlags().Lookup(flag) == nil && !below(cmd, flag) {
				return errors.New("it has no flag --" + flag)
			}
			continue
		}
		next := slices.IndexFunc(cmd.Commands(), func(c *cobra.Command) bool { return c.Name() == word })
		if next >= 0 {
			cmd = cmd.Commands()[next]
		} else if i == 0 && regexp.MustCompile(`^[a-z]`).MatchString(word) {
			return errors.New("there is no such command")
		}
	}
	return nil
}

// below reports whether a subcommand has a flag, for a synopsis that covers several subcommands.
func below(cmd *cobra.Command, flag string) bool {
	parent := cmd.Parent()
	return parent != nil &&
		slices.ContainsFunc(parent.Commands(), func(c *cobra.Command) bool { return c.Flags().Lookup(flag) != nil })
}

// notRun lists commands that wait, or that change the machine.
var notRun = []string{"run", "hold", "intercept", "wait", "token", "keyring", "ui"}

// run runs a command line without an agent. The program must accept it, and return an exit code
// that docs/cli.md lists.
func run(line string) error {
	words := shellWords(line)[1:]
	if len(words) > 0 && slices.Contains(notRun, words[0]) || slices.Contains(words, "--watch") ||
		slices.Contains(words, "-w") {
		return nil
	}
	var errs bytes.Buffer
	switch code := Main(words, strings.NewReader(""), io.Discard, &errs,
		[]string{"NEARSIDE_SOCKET=/nowhere/nearside.sock"}); code {
	case command.ExitOK, command.ExitFailed, command.ExitNo, command.ExitInvalid, command.ExitUnreachable:
		return nil
	default:
		return fmt.Errorf("exit code %d: %s", code, errs.String())
	}
}

// TestDocumentedCommands parses every command line in the documents: the command, the flags with
// their values, and the number of arguments. It also runs the commands in code blocks without an
// agent. Other tests run the pages that contain output with an agent.
func TestDocumentedCommands(t *testing.T) {
	root := cli.Root(&command.Env{})
	found := map[bool]int{}
	dir := t.TempDir() // where commands read and write files
	if err := os.CopyFS(dir+"/examples", os.DirFS("../../examples")); err != nil {
		t.Fatal(err)
	}
	checkout, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	top := os.DirFS(checkout)
	t.Chdir(dir)
	err = fs.WalkDir(top, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			if err == nil && (strings.HasPrefix(d.Name(), ".") && name != "." || d.Name() == "testdata" || name == "dist" ||
				name == "bin" || name == "nearside-data" || name == "docs/decisions") {
				return fs.SkipDir
			}
			return err
		}
		if path.Ext(name) != ".md" || name == "CHANGELOG.md" {
			return nil
		}
		text, err := fs.ReadFile(top, name)
		for _, c := range shownCommands(name, string(text)) {
			found[c.whole]++
			err := exists(root, c.text)
			if c.whole && !strings.Contains(c.text, "…") {
				if err = accepts(c.text); err == nil {
					err = run(c.text)
				}
			}
			if err != nil {
				t.Errorf("%s: %s: %v", c.at, c.text, err)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if found[true] < 150 || found[false] < 100 {
		t.Errorf("only %d commands in blocks and %d in sentences were found: has the form of the documents changed?",
			found[true], found[false])
	}
	t.Logf("%d commands in blocks, %d in sentences", found[true], found[false])
}

// TestWrongCommandsAreFound checks that the check of commands finds errors.
func TestWrongCommandsAreFound(t *testing.T) {
	for _, line := range []string{
		"nearside gett dataplanes", "nearside get", "nearside get dataplanes --colour", "nearside get dataplanes -o xml",
		"nearside wait a b c", "nearside diff --all-nodes=maybe -f x", "nearside explain connection --from web --too a:1",
	} {
		if accepts(line) == nil {
			t.Errorf("%s is accepted", line)
		}
	}
	for _, line := range []string{
		"nearside get dataplanes -o wide | head -n 1", "bin/nearside apply -f - <<'END'",
		"nearside token create --name 'web-*' > web.token # a comment", "nearside bootstrap --name $(hostname -s) && envoy",
	} {
		if err := accepts(line); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
	root := cli.Root(&command.Env{})
	if exists(root, "nearside gett [NAME]") == nil || exists(root, "nearside get TYPE [--colour]") == nil {
		t.Error("a form that is wrong is accepted")
	}
	if err := exists(root, `nearside intercept install|uninstall|status [--netns PATH\|--pid N] [--dry-run]`); err != nil {
		t.Error(err)
	}
	got := shownCommands("x.md", "`nearside get dataplanes`\n```console\n$ bin/nearside apply -f - <<'END'\n"+
		"nearside not this\nEND\nnearside nor this\n$ nearside status\n```\n```yaml\nnearside no\n```\n")
	if len(got) != 3 || got[0].whole || got[1].at != "x.md:3" || got[2].text != "nearside status" {
		t.Errorf("found: %+v", got)
	}
}
