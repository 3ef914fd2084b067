// Command man writes the manual pages of nearside from what its commands say with --help. usage: man BINARY DIR
//
// It is a program of its own, so that nothing of it is in the product. The same binary gives the same bytes.
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
	if err := write(os.Args[1], os.Args[2], "service mesh from the node's side"); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// command is one that the help of another lists: name and what it does.
var command = regexp.MustCompile(`(?m)^  ([a-z][a-z-]*) +(\S.*)$`)

// write makes the page of a command, which does what short says, and those of the commands below it.
func write(binary, dir, short string, path ...string) error {
	out, err := exec.Command(binary, append(path, "--help")...).Output()
	if err != nil {
		return fmt.Errorf("%s %s --help: %w", binary, strings.Join(path, " "), err)
	}
	about, sections := split(string(out))
	name := strings.Join(append([]string{"nearside"}, path...), "-")
	var b strings.Builder
	fmt.Fprintf(&b, ".TH %s 1 \"\" nearside \"nearside manual\"\n.SH NAME\n%s \\- %s\n.SH DESCRIPTION\n%s", escape(strings.ToUpper(name)), escape(name), escape(short), literal(about))
	for _, s := range sections {
		fmt.Fprintf(&b, ".SH %s\n%s", strings.ToUpper(s[0]), literal(s[1]))
	}
	if len(path) > 0 {
		fmt.Fprintf(&b, ".SH SEE ALSO\n.BR %s (1)\n", escape(strings.Join(append([]string{"nearside"}, path[:len(path)-1]...), "-")))
	}
	if err := os.WriteFile(filepath.Join(dir, name+".1"), []byte(b.String()), 0o644); err != nil {
		return err
	}
	for _, s := range sections {
		if s[0] != "Available Commands" {
			continue
		}
		for _, m := range command.FindAllStringSubmatch(s[1], -1) {
			if m[1] == "help" {
				continue
			}
			if err := write(binary, dir, m[2], append(path[:len(path):len(path)], m[1])...); err != nil {
				return err
			}
		}
	}
	return nil
}

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
