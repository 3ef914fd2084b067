package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// trustPage runs the commands of docs/trust.md against two agents.
type trustPage struct {
	t    *testing.T
	dir  string
	join string
	n    map[string]*exec.Cmd // running agents
	ids  map[string]string    // actual fingerprints, by the shown ones
	prep map[string]func()    // run before the block with this first command
}

var (
	shownID   = regexp.MustCompile(`\b[0-9a-f]{32}\b`)
	pageValue = regexp.MustCompile(`\b[0-9a-f]{32}\b|\b[0-9a-f]{8}\b|AAAA[0-9A-Za-z+/]+|\d{4}-\d\d-\d\dT[0-9:]+Z|` +
		`revision \d+|127\.0\.0\.1:\d+|-?\b\d+(\.\d+)?(ms|s|m)\b|\bsame\b|[ \t]+`)
)

// TestTrustPage runs all commands of docs/trust.md, and compares their output with the page, except
// for keys, times, addresses, and column widths.
func TestTrustPage(t *testing.T) {
	dir, err := os.MkdirTemp("", "trust") // a short path, for the sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	text, err := os.ReadFile("../../docs/trust.md")
	if err != nil {
		t.Fatal(err)
	}
	p := &trustPage{t: t, dir: dir, n: map[string]*exec.Cmd{}, ids: map[string]string{}}
	p.write("keyring", strings.Repeat("A", 43)+"=\n")
	p.write("slow.yaml", "type: MeshTimeout\nmesh: default\nname: slow\nspec:\n  targetRef: {kind: Mesh}\n"+
		"  to: [{targetRef: {kind: Mesh}, default: {idleTimeout: 20s}}]\n")
	p.write("mesh.yaml", "type: Mesh\nname: default\n")
	p.prepare()
	for _, block := range blocks.FindAllString(indented.ReplaceAllString(string(text), ""), -1) {
		if f := p.prep[firstCommand(block)]; f != nil {
			f()
		}
		body := strings.TrimSuffix(strings.TrimPrefix(block, "```console\n"), "```")
		for _, piece := range strings.Split("\n"+body, "\n$ ")[1:] {
			line, want, _ := strings.Cut(piece, "\n")
			p.step(line, strings.TrimSuffix(want, "\n"))
		}
	}
}

// indented matches the indentation of blocks in lists.
var indented = regexp.MustCompile(`(?m)^   `)

// prepare sets the state that the page describes in words.
func (p *trustPage) prepare() {
	p.start("n1")
	p.join = p.self("n1").Address
	p.start("n2")
	p.run("nearside apply -f mesh.yaml")
	p.run("nearside apply -f slow.yaml")
	p.until("both nodes sign", func() bool { return strings.Count(p.run("nearside trust show"), "yes") == 2 })
	p.prep = map[string]func(){
		"nearside keys revoke alice --since 2026-11-28T17:09:13Z": func() {
			p.run("nearside keys resign --of n1 --sign operator.key")
			after := time.Now().Truncate(time.Second).Add(time.Second)
			p.until("the second ends", func() bool { return time.Now().After(after.Add(10 * time.Millisecond)) })
			p.ids["2026-11-28T17:09:13Z"] = after.UTC().Format(time.RFC3339)
			p.run("sed -i s/20s/99s/ slow.yaml && nearside apply -f slow.yaml")
			p.run("nearside keys resign --of n1 --sign operator.key")
		},
		"nearside members": func() {
			p.stop("n2")
			if err := os.RemoveAll(filepath.Join(p.dir, "n2/state")); err != nil {
				p.t.Fatal(err)
			}
			p.start("n2")
			p.ids["d367fd118c7388514c360c6ba5228de0"] = p.self("n2").ID
		},
		"nearside trust update -f new.yaml --root root-2.key": func() {
			p.run("cp new.yaml anchor.yaml")
			for name, agent := range p.n {
				_ = agent.Process.Signal(syscall.SIGHUP)
				p.until(name+" has the new root", func() bool {
					return strings.Contains(p.run("nearside trust show --document --socket "+name+"/run/nearside.sock"), "root-2")
				})
			}
		},
	}
}

// step runs a command of the page, and compares its output.
func (p *trustPage) step(line, want string) {
	p.t.Helper()
	for shown, actual := range p.ids {
		line = strings.ReplaceAll(line, shown, actual)
	}
	if line == "vi new.yaml" {
		p.editTrustFile()
		return
	}
	reads := strings.HasPrefix(line, "nearside trust show") || strings.HasPrefix(line, "nearside members")
	got := ""
	for end := time.Now().Add(patience); ; {
		got = strings.TrimSuffix(p.run(line), "\n")
		if steadyPage(got) == steadyPage(want) || !reads || time.Now().After(end) {
			break
		}
		p.until("", func() bool { return true })
	}
	if steadyPage(got) != steadyPage(want) {
		p.t.Errorf("$ %s (-shown +now):\n%s", line, cmp.Diff(steadyPage(want), steadyPage(got)))
	}
	now := shownID.FindAllString(got, -1)
	for i, shown := range shownID.FindAllString(want, -1) {
		if i < len(now) && p.ids[shown] == "" {
			p.ids[shown] = now[i]
		}
	}
}

// editTrustFile makes the changes that the page asks for.
func (p *trustPage) editTrustFile() {
	path := filepath.Join(p.dir, "new.yaml")
	b, err := os.ReadFile(path)
	if err != nil {
		p.t.Fatal(err)
	}
	public, err := os.ReadFile(filepath.Join(p.dir, "root-2.key.pub"))
	if err != nil {
		p.t.Fatal(err)
	}
	b = regexp.MustCompile(`(?m)^version: \d+`).ReplaceAll(b, []byte("version: 5"))
	b = regexp.MustCompile(`(?m)^mode: .*`).ReplaceAll(b, []byte("mode: warn"))
	b = regexp.MustCompile(`(?m)^- \{"name":"root".*`).ReplaceAll(b, []byte(`- {"name":"root-2","key":"`+
		strings.TrimSpace(string(public))+`"}`))
	p.write("new.yaml", string(b))
}

// noFile matches the report that trust.file does not exist before the page makes it.
var noFile = regexp.MustCompile(`(?m)^problem: trust\.file: .* does not exist;.*\n`)

// steadyPage replaces values that differ between runs, and sorts the lines: nodes of one name are
// in the order of their IDs.
func steadyPage(s string) string {
	s = noFile.ReplaceAllString(s, "")
	s = pageValue.ReplaceAllStringFunc(s, func(v string) string {
		if strings.TrimSpace(v) == "" {
			return " "
		}
		return "…"
	})
	s = regexp.MustCompile(`(?m) (-|…)( (-|…))*( |$)`).ReplaceAllString(s, " … ")
	lines := strings.Split(s, "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func (p *trustPage) write(name, text string) {
	if err := os.WriteFile(filepath.Join(p.dir, name), []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// run runs a command line against the agent n1, and returns its output and errors.
func (p *trustPage) run(line string) string {
	cmd := exec.Command("sh", "-c", line)
	cmd.Dir, cmd.Env = p.dir, append(os.Environ(), "NEARSIDE_SOCKET=n1/run/nearside.sock")
	out, _ := cmd.CombinedOutput()
	return string(out)
}

func (p *trustPage) until(what string, ok func() bool) {
	p.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); !ok(); {
		if time.Now().After(end) {
			p.t.Fatalf("not within %s: %s", patience, what)
		}
		<-tick.C
	}
	<-tick.C
}

// pageMember is a node in the output of members.
type pageMember struct {
	ID, Address string
	Self        bool
}

// self returns a node as its agent sees it.
func (p *trustPage) self(name string) (out pageMember) {
	p.until(name+" is ready", func() bool {
		var got struct{ Items []pageMember }
		b := p.run("nearside members -o json --socket " + name + "/run/nearside.sock")
		if json.Unmarshal([]byte(b), &got) != nil {
			return false
		}
		for _, m := range got.Items {
			if m.Self {
				out = m
			}
		}
		return out.ID != ""
	})
	return out
}

// start starts an agent.
func (p *trustPage) start(name string) {
	home := filepath.Join(p.dir, name)
	if err := os.MkdirAll(filepath.Join(home, "resources"), 0o755); err != nil {
		p.t.Fatal(err)
	}
	args := []string{"run"}
	for _, set := range []string{"paths.run=" + home + "/run", "paths.state=" + home + "/state",
		"paths.logs=" + home + "/logs", "resources.dir=" + home + "/resources", "node.name=" + name, "dns.listen=",
		"gossip.keyringFile=" + p.dir + "/keyring", "gossip.bind=127.0.0.1:0", "gossip.join=" + p.join,
		"trust.file=" + p.dir + "/anchor.yaml", "api.socket.group=", "xds.socket.group="} {
		args = append(args, "--set", set)
	}
	agent := exec.Command("nearside", args...)
	var log bytes.Buffer
	agent.Stderr = &log
	if err := agent.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.n[name] = agent
	p.t.Cleanup(func() {
		p.stop(name)
		if p.t.Failed() {
			p.t.Logf("log of %s:\n%s", name, log.String())
		}
	})
	p.self(name)
}

// stop stops an agent, if it runs.
func (p *trustPage) stop(name string) {
	agent := p.n[name]
	delete(p.n, name)
	if agent == nil {
		return
	}
	_ = agent.Process.Signal(syscall.SIGTERM)
	_ = agent.Wait()
}
