// Command man writes the manual pages of nearside from what its commands say with --help. usage:
// man BINARY DIR
//
// Each command has a page: what it does, its usage, examples and flags, its exit status, the
// variables that it reads and the pages beside it.
//
// It is a program of its own, so that nothing of it is in the product. The same binary gives the
// same bytes.
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
	if err := (&manual{binary: os.Args[1], dir: os.Args[2]}).write("service mesh from the node's side"); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// command is one that the help of another lists: name and what it does.
var command = regexp.MustCompile(`(?m)^  ([a-z][a-z-]*) +(\S.*)$`)

// manual is the pages of a binary.
type manual struct {
	binary, dir string
	codes       string // exit codes of commands that do not name their own
}

// environment is what clients of an agent read.
const environment = `NEARSIDE_SOCKET   the unix socket of the agent, where --socket is not given
NO_COLOR          no colours on a terminal`

// write makes the page of a command, which does what short says, and those of the commands below
// it.
func (m *manual) write(short string, path ...string) error {
	out, err := exec.Command(m.binary, append(path, "--help")...).Output()
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
	var below [][]string // commands that the help lists: name and what each does
	for _, s := range sections {
		if s[0] == "Available Commands" {
			for _, c := range command.FindAllStringSubmatch(s[1], -1) {
				if c[1] != "help" {
					below = append(below, c[1:])
				}
			}
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

// page is the name of the page of a command.
func page(path []string) string { return strings.Join(append([]string{"nearside"}, path...), "-") }

// exitCodes takes the paragraph about exit codes, each in a line, out of what a command says of
// itself.
func exitCodes(about string) (rest, codes string) {
	var keep []string
	for p := range strings.SplitSeq(about, "\n\n") {
		before, list, ok := strings.Cut(p, "Exit codes:")
		if !ok {
			keep = append(keep, p)
			continue
		}
		if before = strings.TrimSpace(before); before != "" {
			keep = append(keep, before)
		}
		list = strings.TrimSuffix(strings.Join(strings.Fields(list), " "), ".")
		codes = code.ReplaceAllString(list, "\n$1   ")
	}
	return strings.Join(keep, "\n\n"), strings.TrimSpace(codes)
}

// code begins what is said of an exit code.
var code = regexp.MustCompile(`(?:^|, )(\d+) `)

// heading is a line that begins a section of a help.
var heading = regexp.MustCompile(`^([A-Z][A-Za-z ]+):$`)

// split takes a help apart: what the command does, and its sections.
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

// literal shows a text as it is.
func literal(s string) string {
	return ".nf\n" + escape(strings.Trim(s, "\n")) + "\n.fi\n"
}

// escape keeps troff from reading a text as its own.
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
