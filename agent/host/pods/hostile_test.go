package pods_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/access"
)

// TestHostileRegistrations checks that a registration is refused with a reason, and leaves others
// alone.
func TestHostileRegistrations(t *testing.T) {
	outside := t.TempDir()
	must(t, os.WriteFile(filepath.Join(outside, "x.json"), []byte(text(web("u-x"))), 0o644))
	for _, c := range []struct {
		name string
		make func(n *node)
		want string
	}{
		{"link", func(n *node) {
			n.mkdir("u-x")
			must(t, os.Symlink(filepath.Join(outside, "x.json"), filepath.Join(n.dir, "u-x.json")))
		}, "it is a symbolic link"},
		{"FIFO", func(n *node) { must(t, syscall.Mkfifo(filepath.Join(n.dir, "u-x.json"), 0o644)) }, "not a regular file"},
		{"directory", func(n *node) { must(t, os.Mkdir(filepath.Join(n.dir, "u-x.json"), 0o755)) }, "not a regular file"},
		{"writable by others", func(n *node) {
			n.add(web("u-x"))
			must(t, os.Chmod(filepath.Join(n.dir, "u-x.json"), 0o646))
		}, "its mode 0646"},
		{"too big", func(n *node) { n.write("u-x.json", text(web("u-x"))+strings.Repeat(" ", 4096)) }, "at most 4096"},
		{"empty", func(n *node) { n.write("u-x.json", "") }, "not valid JSON"},
		{"list", func(n *node) { n.write("u-x.json", "[]") }, "not valid JSON"},
		{"uid of another", func(n *node) { n.mkdir("u-x"); n.write("u-x.json", text(web("u-a"))) },
			`uid: "u-a" is not the name of the file`},
		{"uid with dots", func(n *node) { n.write("...json", text(web(".."))) }, ""},
		{"uid of a path", func(n *node) { n.write("a.b.json", text(web("a.b"))) }, `uid: "a.b"`},
		{"namespace", func(n *node) {
			n.write("u-x.json", text(access.Pod{UID: "u-x", Namespace: "a.b", Name: "c"}))
		}, `namespace: "a.b"`},
		{"no namespace", func(n *node) { n.write("u-x.json", text(access.Pod{UID: "u-x", Name: "c"})) }, `namespace: ""`},
		{"name", func(n *node) {
			n.write("u-x.json", text(access.Pod{UID: "u-x", Namespace: "a", Name: "b/../c"}))
		}, `name: "b/../c"`},
		{"name with a line", func(n *node) {
			n.write("u-x.json", text(access.Pod{UID: "u-x", Namespace: "a", Name: "b\nc"}))
		}, `name: "b\nc"`},
		{"service account", func(n *node) {
			n.write("u-x.json", text(access.Pod{UID: "u-x", Namespace: "a", Name: "b", ServiceAccount: "C"}))
		}, `serviceAccount: "C"`},
		{"no directory", func(n *node) { n.write("u-x.json", text(web("u-x"))) }, "its directory does not exist"},
		{"directory is a link", func(n *node) {
			must(t, os.Symlink(outside, filepath.Join(n.dir, "u-x")))
			n.write("u-x.json", text(web("u-x")))
		}, "its directory is a symbolic link"},
		{"directory is a file", func(n *node) { n.write("u-x", ""); n.write("u-x.json", text(web("u-x"))) },
			"its directory is a symbolic link or not a directory"},
		{"directory is writable", func(n *node) { must(t, os.Chmod(n.add(web("u-x")), 0o777)) },
			"the mode 0777 of its directory"},
		{"socket is a directory", func(n *node) {
			must(t, os.MkdirAll(filepath.Join(n.add(web("u-x")), "xds.sock", "a"), 0o755))
		}, "its socket xds.sock"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNode(t, nil)
			dir := n.add(web("u-a"))
			c.make(n)
			n.Scan()
			s := n.State()
			if got := strings.Join(s.Refused, "; "); c.want == "" && got != "" || !strings.Contains(got, c.want) {
				t.Errorf("refused %q; want %q", got, c.want)
			}
			n.connect(dir, "xds.sock", 0)
		})
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) != 1 {
		t.Errorf("files were made through a link: %v, %v", entries, err)
	}
}

// TestForeignRegistration checks files and directories of other users.
func TestForeignRegistration(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can give files to other users")
	}
	n := newNode(t, nil)
	n.add(web("u-x"))
	must(t, os.Chown(filepath.Join(n.dir, "u-x.json"), 5678, 5678))
	must(t, os.Chown(n.add(web("u-y")), 5678, 5678))
	n.Scan()
	got := strings.Join(n.State().Refused, "; ")
	if !strings.Contains(got, "u-x.json: it belongs to uid 5678 instead of root") ||
		!strings.Contains(got, "u-y.json: its directory belongs to uid 5678; set --owner of the CSI driver") {
		t.Errorf("refused %q", got)
	}
}
