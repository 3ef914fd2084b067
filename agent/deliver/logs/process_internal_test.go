package logs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/access"
)

// TestUnreachable checks which processes can access the agent's run directory, without accessing
// their mounts.
func TestUnreachable(t *testing.T) {
	const own = "21 1 8:1 / / rw - ext4 a rw\n22 21 0:20 / /run rw - tmpfs t rw\n"
	for name, c := range map[string]struct {
		peer      access.Peer
		namespace string
		mounts    string
		dir, want string
	}{
		"the same namespace": {access.Peer{Local: true, PID: 7}, "mnt:[1]", "", "", ""},
		"the directory is mounted": {access.Peer{Local: true, PID: 7}, "mnt:[2]",
			"1 0 0:99 / / rw - overlay o rw\n2 1 0:20 /nearside /run/nearside rw - tmpfs t rw\n", "", ""},
		"run is mounted": {access.Peer{Local: true, PID: 7}, "mnt:[2]",
			"1 0 0:99 / / rw - overlay o rw\n2 1 0:20 / /run rw - tmpfs t rw\n", "", ""},
		"only the socket": {access.Peer{Local: true, PID: 7}, "mnt:[2]", "1 0 0:99 / / rw - overlay o rw\n" +
			"2 1 0:20 /nearside/xds.sock /run/nearside/xds.sock rw - tmpfs t rw\n", "", "another mount namespace"},
		"another one on top": {access.Peer{Local: true, PID: 7}, "mnt:[2]",
			"2 1 0:20 / /run rw - tmpfs t rw\n3 1 0:77 / /run rw - tmpfs u rw\n", "", "another mount namespace"},
		"one over the FIFOs": {access.Peer{Local: true, PID: 7}, "mnt:[2]",
			"2 1 0:20 / /run rw - tmpfs t rw\n3 2 0:77 / /run/nearside/access rw - tmpfs u rw\n", "", "another mount namespace"},
		"a name with a space": {access.Peer{Local: true, PID: 7}, "mnt:[2]",
			"2 1 0:20 /a\\040b /run/a\\040b rw - tmpfs t rw\n", "/run/a b/access", ""},
		"nonsense": {access.Peer{Local: true, PID: 7}, "mnt:[2]", "\n1\n a b c d e\n", "",
			"another mount namespace"},
		"a process that cannot be seen": {access.Peer{Local: true, PID: 8}, "mnt:[2]", "", "", ""},
		"loopback":                      {access.Peer{Addr: "127.0.0.1:77"}, "", "", "", ""},
		"another host":                  {access.Peer{Addr: "192.0.2.1:77"}, "", "", "", "another host (192.0.2.1)"},
		"another pid namespace":         {access.Peer{Local: true}, "", "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			proc := t.TempDir()
			write := func(pid, namespace, mounts string) {
				t.Helper()
				if err := os.MkdirAll(filepath.Join(proc, pid, "ns"), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.Symlink(namespace, filepath.Join(proc, pid, "ns/mnt")); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(proc, pid, "mountinfo"), []byte(mounts), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			write("self", "mnt:[1]", own)
			if c.namespace != "" {
				write("7", c.namespace, c.mounts)
			}
			m := &Manager{o: Options{Proc: proc, Dir: "/run/nearside/access"}}
			if c.dir != "" {
				m.o.Dir = c.dir
			}
			got := m.unreachable(c.peer, true)
			if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// TestProcess checks that a process is identified by pid and start time, whatever its name is.
func TestProcess(t *testing.T) {
	m := &Manager{o: Options{Proc: "/proc"}}
	own := m.processOf(access.Peer{Local: true, PID: int32(os.Getpid())})
	if own == "" || !m.lives(own) || m.lives(own+"0") || m.lives("") || m.lives("../self 1") || m.lives("1") {
		t.Errorf("%q", own)
	}
	proc := t.TempDir()
	if err := os.Mkdir(filepath.Join(proc, "9"), 0o700); err != nil {
		t.Fatal(err)
	}
	m.o.Proc = proc
	for text, want := range map[string]string{
		"9 (a) b (c)) S 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 42 0": "9 42",
		"9 (a) Z 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 42 0":        "",
		"9 (a) S 1": "", "": "", "no": "",
	} {
		if err := os.WriteFile(filepath.Join(proc, "9/stat"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := m.processOf(access.Peer{Local: true, PID: 9}); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
