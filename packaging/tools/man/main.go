// Command man writes the manual pages of nearside from the --help output of its commands. usage:
// man BINARY DIR
//
// Each command has a page with its description, usage, examples, flags, exit status, environment,
// and related pages. The same binary produces the same bytes.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: man BINARY DIR")
		os.Exit(64)
	}
	if err := (&manual{binary: os.Args[1], dir: os.Args[2]}).write("node agent for Envoy meshes"); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// command matches a line of help that lists a subcommand: its name and description.
var command = regexp.MustCompile(`(?m)^  ([a-z][a-z-]*) +(\S.*)$`)

// manual writes the pages of a binary.
type manual struct {
	binary, dir string
	codes       string // exit codes of commands whose help lists none
}

// environment describes the variables that all commands read.
const environment = `NEARSIDE_SOCKET   Unix socket of the agent, unless --socket is given
NEARSIDE_KEY      key that signs changes, unless --sign is given
NO_COLOR          disables colors on a terminal`

// write writes the page of a command and those of its subcommands. short describes the command.
func (m *manual) write(short string, path ...string) error {
	help := exec.Command(m.binary, append(path, "--help")...)
	help.Env = append(os.Environ(), "COLUMNS=80")
	out, err := help.Output()
	if err != nil {
		return fmt.Errorf("%s %s --help: %w", m.binary, strings.Join(path, " "), err)
	}
	about, sections := split(string(out))
	about, codes := exitCodes(about)
	if len(path) == 0 {
		m.codes = codes
	} else if codes == "" {
		codes = m.codes
	}
	var below [][]string // names and descriptions of subcommands
	for _, s := range sections {
		switch s[0] {
		case "Usage", "Examples", "Flags", "Global Flags":
			continue
		}
		for _, c := range command.FindAllStringSubmatch(s[1], -1) { // a group of subcommands
			below = append(below, c[1:])
		}
	}
	name := page(path)
	var b strings.Builder
	fmt.Fprintf(&b, ".TH %s 1 \"\" nearside \"nearside manual\"\n.SH NAME\n%s \\- %s\n.SH DESCRIPTION\n%s",
		escape(strings.ToUpper(name)), escape(name), escape(short), literal(about))
	for _, s := range sections {
		fmt.Fprintf(&b, ".SH %s\n%s", strings.ToUpper(s[0]), literal(s[1]))
	}
	fmt.Fprintf(&b, ".SH EXIT STATUS\n%s.SH ENVIRONMENT\n%s", literal(codes), literal(environment))
	var also []string
	if len(path) > 0 {
		also = append(also, page(path[:len(path)-1]))
	}
	for _, c := range below {
		also = append(also, page(append(path[:len(path):len(path)], c[0])))
	}
	for i, p := range also {
		also[i] = fmt.Sprintf(".BR %s (1)", escape(p))
	}
	fmt.Fprintf(&b, ".SH SEE ALSO\n%s\n", strings.Join(also, " ,\n"))
	if err := os.WriteFile(filepath.Join(m.dir, name+".1"), []byte(b.String()), 0o644); err != nil {
		return err
	}
	for _, c := range below {
		if err := m.write(c[1], append(path[:len(path):len(path)], c[0])...); err != nil {
			return err
		}
	}
	return nil
}

// page returns the name of a command's page.
func page(path []string) string { return strings.Join(append([]string{"nearside"}, path...), "-") }

// exitCodes splits the paragraph about exit codes from the description of a command. codes has one
// code per line.
func exitCodes(about string) (rest, codes string) {
	var paragraphs []string
	for p := range strings.SplitSeq(about, "\n\n") {
		before, list, ok := strings.Cut(p, "Exit codes:")
		if !ok {
			paragraphs = append(paragraphs, p)
			continue
		}
		if before = strings.TrimSpace(before); before != "" {
			paragraphs = append(paragraphs, before)
		}
		list = strings.TrimSuffix(strings.Join(strings.Fields(list), " "), ".")
		codes = code.ReplaceAllString(list, "\n$1   ")
	}
	return strings.Join(paragraphs, "\n\n"), strings.TrimSpace(codes)
}

// code matches an exit code before its description.
var code = regexp.MustCompile(`(?:^|, )(\d+) `)

// heading matches the first line of a section.
var heading = regexp.MustCompile(`^([A-Z][A-Za-z ]+):$`)

// split splits help into the description of the command and its sections.
func split(help string) (about string, sections [][2]string) {
	for line := range strings.Lines(help) {
		text := strings.TrimRight(line, "\n")
		switch m := heading.FindStringSubmatch(text); {
		case m != nil:
			sections = append(sections, [2]string{m[1], ""})
		case len(sections) > 0:
			sections[len(sections)-1][1] += text + "\n"
		default:
			about += text + "\n"
		}
	}
	return strings.Trim(about, "\n"), sections
}

// literal returns a text that troff does not fill.
func literal(s string) string {
	return ".nf\n" + escape(strings.Trim(s, "\n")) + "\n.fi\n"
}

// escape escapes the control characters of troff.
func escape(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(s)
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, ".") || strings.HasPrefix(l, "'") {
			lines[i] = `\&` + l
		}
	}
	return strings.Join(lines, "\n")
}
