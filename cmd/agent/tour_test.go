package main

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestTour runs the commands of README, docs/tour.md, and docs/dns.md, and those of docs/cli.md
// that need an agent.
func TestTour(t *testing.T) { takeTour(t, "README.md", "docs/tour.md", "docs/dns.md", "docs/cli.md") }

// TestFirstPolicies runs the commands of docs/first-policies.md.
func TestFirstPolicies(t *testing.T) { takeTour(t, "docs/first-policies.md") }

// takeTour runs the commands of pages against an agent on a copy of the quickstart, and compares
// the output with the pages, except for times, column widths, and the version. UPDATE_GOLDEN=1
// updates the pages.
func takeTour(t *testing.T, pages ...string) {
	const top = "../.."
	dir, err := os.MkdirTemp("", "tour") // a short path, for the sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.CopyFS(filepath.Join(dir, "examples/quickstart"),
		os.DirFS(filepath.Join(top, "examples/quickstart"))); err != nil {
		t.Fatal(err)
	}
	tour := tour{t: t, dir: dir, quickstart: os.DirFS(filepath.Join(top, "examples/quickstart"))}
	tour.start()
	for _, page := range pages {
		text, err := os.ReadFile(filepath.Join(top, page))
		if err != nil {
			t.Fatal(err)
		}
		changed := blocks.ReplaceAllStringFunc(string(text), func(block string) string {
			first := firstCommand(block)
			// TestKindPages runs the former
			if page == "docs/cli.md" && strings.HasPrefix(first, "bin/") || notHeld[page+" "+first] != "" {
				return block
			}
			return tour.block(block)
		})
		if os.Getenv("UPDATE_GOLDEN") != "" && changed != string(text) {
			if err := os.WriteFile(filepath.Join(top, page), []byte(changed), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// changes matches commands whose output differs when they are repeated.
var changes = regexp.MustCompile(`^bin/nearside (apply|delete|rollback) `)

var blocks = regexp.MustCompile("(?s)```console\n.*?```")

// notHeld lists blocks whose output is not tested, by page and first command, with the reason.
var notHeld = map[string]string{
	"docs/cli.md nearside access whoami": "the answer is that to another user, under the roles of docs/api.md; " +
		"roles_test.go of package inspect asks so",
	"docs/reachability.md nearside reachable suggest --dataplane web": "it reads what an Envoy has logged; " +
		"reachable.txtar runs it on such lines",
	"docs/envoy.md " +
		"export NEARSIDE_SOCKET=nearside-data/run/nearside.sock": needsEnvoy,
	"docs/envoy.md " +
		"mkdir www && echo hello from the backend > www/index.html": needsEnvoy,
	"docs/envoy.md " +
		"bin/nearside apply -f - <<'END'": needsEnvoy,
	"docs/envoy.md " +
		"cat > examples/quickstart/resources/00-mesh.yaml <<'END'": needsEnvoy,
	`docs/envoy.md sed -i 's/kuma.io\/service: web$/kuma.io\/service: nobody/' examples/quickstart/resources/policies.yaml`: needsEnvoy,
	"docs/envoy.md " +
		"git checkout -q examples": needsEnvoy,
}

const needsEnvoy = "its answers come from real Envoys, which a machine need not have; " +
	"the steps are those of make demo, which a test compares"

// firstCommand returns the first command of a block.
func firstCommand(block string) string {
	first, _, _ := strings.Cut(strings.TrimPrefix(block, "```console\n"), "\n")
	return strings.TrimPrefix(first, "$ ")
}

// TestShownOutputIsHeld checks that each block with output is on a tested page, or is listed with
// the reason why it is not.
func TestShownOutputIsHeld(t *testing.T) {
	held := regexp.MustCompile(`^(README\.md|docs/(tour|first-policies|migration|from-kuma|dns|cli|trust|audit)\.md|docs/kinds/[a-z-]+\.md)$`)
	top, met := os.DirFS("../.."), map[string]bool{}
	for _, glob := range []string{"*.md", "docs/*.md", "docs/*/*.md", "examples/*/*.md", "packaging/*/*.md"} {
		pages, err := fs.Glob(top, glob)
		if err != nil {
			t.Fatal(err)
		}
		for _, page := range pages {
			text, err := fs.ReadFile(top, page)
			if err != nil {
				t.Fatal(err)
			}
			for _, block := range blocks.FindAllString(string(text), -1) {
				at := page + " " + firstCommand(block)
				if met[at] = true; !held.MatchString(page) && notHeld[at] == "" {
					t.Errorf("%s: no test runs this block; put it on a page that one does, or list why it cannot be", at)
				}
			}
		}
	}
	for at := range notHeld {
		if !met[at] {
			t.Errorf("%s: there is no such block; take it off the list", at)
		}
	}
}

type tour struct {
	t          *testing.T
	dir        string
	quickstart fs.FS
	resolver   string // address of the resolver, instead of the default
}

func (r *tour) start() {
	// The default address may be in use.
	agent := exec.Command("nearside", "run", "--config", "examples/quickstart/agent.yaml",
		"--set", "dns.listen=127.0.0.1:0")
	agent.Dir, agent.Stderr = r.dir, os.Stderr
	if err := agent.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		_ = agent.Process.Signal(syscall.SIGTERM)
		if err := agent.Wait(); err != nil {
			r.t.Errorf("the agent ended with %v", err)
		}
	})
	r.until(func() bool { return r.command("nearside healthcheck").Run() == nil })
	out, err := r.command("nearside dns table -o json").Output()
	var table struct{ Listen []string }
	if err := errors.Join(err, json.Unmarshal(out, &table)); err != nil || len(table.Listen) != 1 {
		r.t.Fatalf("the agent has no resolver: %v\n%s", err, out)
	}
	r.resolver = table.Listen[0]
}

// until repeats ok until it returns true or the timeout is reached. The timeout is 2 s when the
// pages are updated.
func (r *tour) until(ok func() bool) bool {
	patience := patience
	if os.Getenv("UPDATE_GOLDEN") != "" {
		patience = 2 * time.Second
	}
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
	return true
}

func (r *tour) command(line string) *exec.Cmd {
	// The copy is not a Git repository, so files that git would restore are copied from the
	// original.
	if file, ok := strings.CutPrefix(line, "git checkout -q examples/quickstart/"); ok {
		original, err := fs.ReadFile(r.quickstart, file)
		if err != nil {
			r.t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(r.dir, "examples/quickstart", file), original, 0o644); err != nil {
			r.t.Fatal(err)
		}
		line = "true"
	}
	cmd := exec.Command("sh", "-c", strings.ReplaceAll(line, "bin/nearside", "nearside"))
	cmd.Dir = r.dir
	cmd.Env = append(os.Environ(), "NEARSIDE_SOCKET=nearside-data/run/nearside.sock")
	return cmd
}

// block runs the commands of one block and returns the block with their output.
func (r *tour) block(text string) string {
	body := strings.TrimSuffix(strings.TrimPrefix(text, "```console\n"), "```")
	var out strings.Builder
	out.WriteString("```console\n")
	for _, piece := range strings.Split("\n"+body, "\n$ ")[1:] {
		line, want, _ := strings.Cut(piece, "\n")
		if _, end, ok := strings.Cut(line, "<<'"); ok { // the command includes its here document
			end = strings.TrimSuffix(end, "'")
			document, rest, _ := strings.Cut(want, "\n"+end)
			line, want = line+"\n"+document+"\n"+end, strings.TrimPrefix(rest, "\n")
		}
		want = strings.TrimSuffix(want, "\n")
		got := ""
		same := r.until(func() bool {
			b, err := r.command(line).CombinedOutput()
			if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
				r.t.Fatal(err)
			}
			got = strings.TrimSuffix(strings.NewReplacer(r.dir+"/", "", r.resolver, "127.0.0.1:15053").Replace(string(b)), "\n")
			return steady(got) == steady(want) || os.Getenv("UPDATE_GOLDEN") != "" && changes.MatchString(line)
		})
		if !same && os.Getenv("UPDATE_GOLDEN") == "" {
			r.t.Errorf("$ %s (-shown +now):\n%s", line, cmp.Diff(steady(want), steady(got)))
		}
		out.WriteString("$ " + line + "\n")
		if got != "" {
			out.WriteString(got + "\n")
		}
	}
	out.WriteString("```")
	return out.String()
}

var variable = regexp.MustCompile(
	`queries: [^\n]+|\d+ MiB in use[^\n]+|uid=\d+ \([^)]*\)|nearside \S+ on|pid \d+|\b\d+(\.\d+)? ?(ms|s|m|h)\b|[ \t]+`)

// steady replaces values that differ between runs.
func steady(s string) string {
	return variable.ReplaceAllStringFunc(s, func(m string) string {
		if strings.TrimSpace(m) == "" {
			return " "
		}
		return "…"
	})
}
