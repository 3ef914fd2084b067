package directory_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/source/directory"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// TestRevision checks the commit and author of a directory in the layouts of Git, and that files of
// other forms are not used.
func TestRevision(t *testing.T) {
	one, two := strings.Repeat("1a", 20), strings.Repeat("2b", 32)
	const file = directory.RevisionFile
	for name, c := range map[string]struct {
		files                 map[string]string // below the parent of the directory "d"; "-> x" is a link
		dir                   string            // default: d
		commit, author, fault string
	}{
		"none": {},
		"file": {files: map[string]string{"d/" + file: "v1.2\n"}, commit: "v1.2"},
		"file with an author": {files: map[string]string{"d/" + file: "v1\nAda <a@x>\nmore\n"}, commit: "v1",
			author: "Ada <a@x>"},
		"file before Git":    {files: map[string]string{"d/" + file: "v1", "d/.git/HEAD": one}, commit: "v1"},
		"empty file":         {files: map[string]string{"d/" + file: "\n"}, fault: "it is empty"},
		"control characters": {files: map[string]string{"d/" + file: "v1\nA\x1b[2J"}, fault: "control characters"},
		"not UTF-8":          {files: map[string]string{"d/" + file: "v\xff"}, fault: "control characters"},
		"long line": {files: map[string]string{"d/" + file: strings.Repeat("v", 254)},
			fault: "more than 253 bytes"},
		"long file": {files: map[string]string{"d/" + file: strings.Repeat("v\n", 3000)},
			fault: "it has more than 4096 bytes"},
		"link that leads out": {files: map[string]string{"secret": "s3cret", "d/" + file: "-> ../secret"},
			fault: "leads out of its directory"},
		"pipe": {files: map[string]string{"d/" + file: "|"}, fault: "is a pipe"},

		"detached": {files: map[string]string{"d/.git/HEAD": one + "\n"}, commit: one},
		"SHA-256":  {files: map[string]string{"d/.git/HEAD": two + "\n"}, commit: two},
		"branch": {files: map[string]string{"d/.git/HEAD": "ref: refs/heads/main\n", "d/.git/refs/heads/main": one + "\n"},
			commit: one},
		"loose before packed": {files: map[string]string{"d/.git/HEAD": "ref: refs/heads/main\n",
			"d/.git/refs/heads/main": one, "d/.git/packed-refs": strings.Repeat("3", 40) + " refs/heads/main\n"}, commit: one},
		"packed": {files: map[string]string{"d/.git/HEAD": "ref: refs/heads/main\n",
			"d/.git/packed-refs": "# pack-refs with: peeled\n" + strings.Repeat("3", 40) + " refs/heads/main2\n" + one +
				" refs/heads/main\n^" + strings.Repeat("4", 40) + "\n"}, commit: one},
		"parent": {files: map[string]string{".git/HEAD": one, "d/e/x": ""}, dir: "d/e", commit: one},
		"symbolic reference": {files: map[string]string{"d/.git/HEAD": "ref: refs/a", "d/.git/refs/a": "ref: refs/b",
			"d/.git/refs/b": one}, commit: one},
		"worktree": {files: map[string]string{"d/.git": "gitdir: ../repo/worktrees/d\n",
			"repo/worktrees/d/HEAD": "ref: refs/heads/main", "repo/worktrees/d/commondir": "../..\n",
			"repo/refs/heads/main": one}, commit: one},
		"link to a worktree": {files: map[string]string{"d": "-> trees/1", "trees/1/.git": "gitdir: ../../repo/w\n",
			"repo/w/HEAD": one}, commit: one},

		"unborn branch":   {files: map[string]string{"d/.git/HEAD": "ref: refs/heads/main\n"}},
		"loop":            {files: map[string]string{"d/.git/HEAD": "ref: refs/a", "d/.git/refs/a": "ref: refs/a"}},
		"not a commit":    {files: map[string]string{"d/.git/HEAD": "root:x:0:0"}},
		"upper case":      {files: map[string]string{"d/.git/HEAD": strings.Repeat("A", 40)}},
		"outside refs":    {files: map[string]string{"d/.git/HEAD": "ref: config", "d/.git/config": one}},
		"leads out":       {files: map[string]string{"d/.git/HEAD": "ref: refs/../../x", "d/x": one}},
		"HEAD is a pipe":  {files: map[string]string{"d/.git/HEAD": "|"}},
		"HEAD is long":    {files: map[string]string{"d/.git/HEAD": one + strings.Repeat(" ", 5000)}},
		"no HEAD":         {files: map[string]string{"d/.git/config": ""}},
		"not a git file":  {files: map[string]string{"d/.git": "hello"}},
		"git file is nil": {files: map[string]string{"d/.git": "gitdir: \x00"}},
	} {
		t.Run(name, func(t *testing.T) {
			base := t.TempDir()
			dir := filepath.Join(base, "d")
			for path, text := range c.files {
				path = filepath.Join(base, path)
				agenttest.Do(t, os.MkdirAll(filepath.Dir(path), 0o755))
				if to, link := strings.CutPrefix(text, "-> "); link {
					agenttest.Do(t, os.Symlink(to, path))
				} else if text == "|" {
					agenttest.Do(t, syscall.Mkfifo(path, 0o644))
				} else {
					agenttest.Write(t, path, text)
				}
			}
			if c.dir != "" {
				dir = filepath.Join(base, c.dir)
			}
			_ = os.MkdirAll(dir, 0o755)
			agenttest.Write(t, filepath.Join(dir, "m.yaml"), agenttest.Meshes("m"))
			s := directory.New(directory.Options{Dirs: []directory.Dir{{Path: dir, Publish: "p"}},
				Registry: kinds.Registry(), Store: agenttest.Memory(t)})
			s.Scan()
			p := s.Published()[0]
			if p.Commit != c.commit || p.Author != c.author || (p.Fault == "") != (c.fault == "") ||
				!strings.Contains(p.Fault, c.fault) {
				t.Errorf("commit %q by %q, fault %q; want %q by %q, %q", p.Commit, p.Author, p.Fault, c.commit, c.author, c.fault)
			}
			if p.Time.IsZero() {
				t.Error("the content has no time")
			}
		})
	}
}
