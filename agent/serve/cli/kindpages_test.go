package cli

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
)

// TestKindPages runs the commands on the pages of docs/kinds next to their examples, and compares
// the output. An example is a block whose first line names its file. The blocks of docs/cli.md that
// begin with bin/nearside run with the same files. UPDATE_GOLDEN=1 rewrites the pages.
func TestKindPages(t *testing.T) {
	top, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob(filepath.Join(top, "docs/kinds/*.md"))
	if err != nil || len(pages) < 20 {
		t.Fatalf("%d pages in docs/kinds: %v", len(pages), err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "examples/shop"), os.DirFS(filepath.Join(top, "examples/shop"))); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	commands := 0
	for _, page := range append(pages, filepath.Join(top, "docs/cli.md")) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range example.FindAllStringSubmatch(string(text), -1) {
			if err := os.WriteFile(m[1], []byte(m[2]), 0o600); err != nil {
				t.Fatal(err)
			}
			validate := "nearside validate -f " + m[1]
			if !strings.HasPrefix(m[2], "type: Mesh\n") { // the shop has one
				validate += " -f examples/shop/resources"
			}
			if code, out := offlineCommand(t, validate); code != command.ExitOK {
				t.Errorf("%s: %s is not valid: exit code %d\n%s", filepath.Base(page), m[1], code, out)
			}
		}
		changed := consoles.ReplaceAllStringFunc(string(text), func(block string) string {
			if !strings.HasPrefix(block, "```console\n$ bin/") {
				return block
			}
			out := "```console\n"
			for _, piece := range strings.Split("\n"+strings.TrimSuffix(strings.TrimPrefix(block, "```console\n"), "```"),
				"\n$ ")[1:] {
				line, want, _ := strings.Cut(piece, "\n")
				commands++
				_, got := offlineCommand(t, line)
				if d := cmp.Diff(strings.TrimSuffix(want, "\n"), strings.TrimSuffix(got, "\n")); d != "" &&
					os.Getenv("UPDATE_GOLDEN") == "" {
					t.Errorf("%s: $ %s (-shown +now):\n%s", filepath.Base(page), line, d)
				}
				out += "$ " + line + "\n" + got
			}
			return out + "```"
		})
		if os.Getenv("UPDATE_GOLDEN") != "" && changed != string(text) {
			if err := os.WriteFile(page, []byte(changed), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	if commands < 28 {
		t.Errorf("only %d commands found in docs/kinds", commands)
	}
}

// consoles matches blocks with commands and their output.
var consoles = regexp.MustCompile("(?s)```console\n.*?```")

// example is a block whose first line is a comment with the name of its file.
var example = regexp.MustCompile("(?s)```yaml\n# ([a-z]+\\.yaml)\n(.*?)```")

// offlineCommand runs a command line, which may end with "| head -n N" or "| grep WORD", and
// returns all that it prints, that on standard error first.
func offlineCommand(t *testing.T, line string) (code int, out string) {
	t.Helper()
	line, filter, _ := strings.Cut(strings.TrimPrefix(line, "bin/"), " | ")
	var stdout, stderr bytes.Buffer
	code = run(strings.Fields(line)[1:], strings.NewReader(""), &stdout, &stderr, nil)
	text := stderr.String() + stdout.String()
	if filter == "" {
		return code, text
	}
	count, head := strings.CutPrefix(filter, "head -n ")
	n, err := strconv.Atoi(count)
	word, grep := strings.CutPrefix(filter, "grep ")
	if head == grep || head && err != nil {
		t.Fatalf("%q is neither head -n N nor grep WORD", filter)
	}
	for l := range strings.Lines(text) {
		if head && strings.Count(out, "\n") < n || grep && strings.Contains(l, word) {
			out += l
		}
	}
	return code, out
}

// TestEachKindHasAPage: the index and the pages of docs/kinds are about the kinds that there are,
// each legacy one with what replaces it.
func TestEachKindHasAPage(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile("../../../docs/kinds/" + name)
		if err != nil {
			t.Error(err)
		}
		return string(text)
	}
	index, legacy := read("README.md"), read("legacy.md")
	rows, policies := 0, 0
	for _, k := range kinds.All() {
		page := strings.ToLower(k.Kind) + ".md"
		if k.Legacy {
			if !strings.Contains(legacy, "\n## "+k.Kind+"\n") ||
				!strings.Contains(legacy, fmt.Sprintf("\n| [%s](#%s) | [", k.Kind, strings.ToLower(k.Kind))) {
				t.Errorf("docs/kinds/legacy.md has no row and section for %s", k.Kind)
			}
			continue
		}
		rows++
		if k.Policy {
			policies++
		}
		short := ""
		if k.Short != "" {
			short = "`" + k.Short + "` "
		}
		if row := fmt.Sprintf("\n| [%s](%s) | %s| ", k.Kind, page, short); !strings.Contains(index, row) {
			t.Errorf("docs/kinds/README.md has no row %q", row)
		}
		text := read(page)
		for _, piece := range []string{
			"# " + k.Kind + "\n", "\n**When.** ", "\n## Example\n", "\n## What changes in Envoy\n", "\n## Pitfalls\n",
		} {
			if !strings.Contains(text, piece) {
				t.Errorf("docs/kinds/%s has no %q", page, strings.TrimSpace(piece))
			}
		}
	}
	if readme := read("../../README.md"); !strings.Contains(readme, fmt.Sprintf(" %d [policy kinds]", policies)) {
		t.Errorf("README.md has another number of kinds of policies than %d", policies)
	}
	if got := strings.Count(index, "\n| ["); got != rows {
		t.Errorf("docs/kinds/README.md has %d rows for %d kinds", got, rows)
	}
}

var (
	envoyRow   = regexp.MustCompile(`(?m)^\| .* \| (.*) \|$`)
	envoyField = regexp.MustCompile("`([A-Z][A-Za-z0-9]+)\\.([a-z0-9_]+)`")
)

// TestKindPagesNameFieldsOfEnvoy: each field that the tables of docs/kinds name is one of Envoy's
// API.
func TestKindPagesNameFieldsOfEnvoy(t *testing.T) {
	fields := map[string]bool{}
	protoregistry.GlobalTypes.RangeMessages(func(m protoreflect.MessageType) bool {
		d := m.Descriptor()
		if strings.HasPrefix(string(d.FullName()), "envoy.") {
			for i := range d.Fields().Len() {
				fields[string(d.Name())+"."+string(d.Fields().Get(i).Name())] = true
			}
		}
		return true
	})
	pages, err := filepath.Glob("../../../docs/kinds/*.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range envoyRow.FindAllStringSubmatch(string(text), -1) {
			for _, m := range envoyField.FindAllStringSubmatch(row[1], -1) {
				found++
				if !fields[m[1]+"."+m[2]] {
					t.Errorf("%s: Envoy has no field %s.%s", filepath.Base(page), m[1], m[2])
				}
			}
		}
	}
	if found < 60 {
		t.Errorf("only %d fields found in docs/kinds", found)
	}
}
