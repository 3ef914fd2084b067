package intercept

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"
)

// TestWatchEvents: after a scan, events announce new files and cgroups, and the first process of an
// empty cgroup.
func TestWatchEvents(t *testing.T) {
	root, err := cgroupRoot()
	if err != nil {
		t.Skipf("skipped: %v", err)
	}
	name := fmt.Sprintf("nearside-events-%d", os.Getpid())
	pod := filepath.Join(root, name, "pod")
	if err := os.MkdirAll(pod, 0o755); err != nil {
		t.Skipf("skipped: a cgroup cannot be made: %v", err)
	}
	t.Cleanup(func() { _, _, _ = os.Remove(pod+"2"), os.Remove(pod), os.Remove(filepath.Dir(pod)) })
	dir := t.TempDir()
	rules := []Rule{{Name: "a", Cgroup: name + "/*", Spec: Spec{DNSPort: 15053}},
		{Name: "b", Netns: dir + "/*/ns", Spec: Spec{DNSPort: 15053}}}
	w := NewWatcher(WatcherOptions{Dir: filepath.Join(dir, DirName), Rules: rules})
	events, err := fsnotify.NewWatcher()
	if err != nil {
		t.Fatal(err)
	}
	defer events.Close()
	if announced, _ := w.scan(rules, events); !announced {
		t.Fatal("events do not announce all changes")
	}
	await := func(path string) {
		t.Helper()
		timeout := time.After(time.Minute)
		for {
			select {
			case e := <-events.Events:
				if e.Name == path {
					return
				}
			case <-timeout:
				t.Fatalf("no event of %s", path)
			}
		}
	}
	if err := os.Mkdir(pod+"2", 0o755); err != nil {
		t.Fatal(err)
	}
	await(pod + "2")
	if err := os.Mkdir(filepath.Join(dir, "c"), 0o755); err != nil {
		t.Fatal(err)
	}
	await(filepath.Join(dir, "c"))
	f, err := os.Open(pod)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cmd := exec.Command("sleep", "1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(f.Fd())}
	if err := cmd.Start(); err != nil {
		t.Skipf("skipped: a program cannot be started in a cgroup: %v", err)
	}
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	await(filepath.Join(pod, cgroupEvents))
}

// TestResolvConf: the resolv.conf of a process is read below its root, whatever it is.
func TestResolvConf(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("skipped: another root directory needs root")
	}
	outside := filepath.Join(t.TempDir(), "outside")
	root := t.TempDir()
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(outside, "nameserver 192.0.2.66\n")
	conf := filepath.Join(root, resolvConf)
	if err := os.MkdirAll(filepath.Dir(conf), 0o755); err != nil {
		t.Fatal(err)
	}
	dir, err := os.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	for _, c := range []struct {
		name string
		make func() error
		want []string // servers, or nil for an error
	}{
		{"a file", func() error {
			write(conf, "# text\nnameserver 192.0.2.1\nnameserver fe80::1%eth0\nnameserver 192.0.2.1\nnameserver\n"+
				"nameserver x\nnameserver 0.0.0.0\n nameserver\t::ffff:192.0.2.2 # second\n")
			return nil
		}, []string{"192.0.2.1:53", "192.0.2.2:53"}},
		{"nine servers", func() error {
			var b strings.Builder
			for i := range 9 {
				fmt.Fprintf(&b, "nameserver 192.0.2.%d\n", i)
			}
			write(conf, b.String())
			return nil
		}, []string{"192.0.2.0:53", "192.0.2.1:53", "192.0.2.2:53", "192.0.2.3:53", "192.0.2.4:53", "192.0.2.5:53",
			"192.0.2.6:53", "192.0.2.7:53"}},
		{"empty", func() error { write(conf, ""); return nil }, []string{}},
		{"too large", func() error { write(conf, strings.Repeat("#", maxResolvConf+1)); return nil }, nil},
		{"a link within the root", func() error {
			write(filepath.Join(root, "stub"), "nameserver 192.0.2.3\n")
			return os.Symlink("/stub", conf)
		}, []string{"192.0.2.3:53"}},
		{"a link to a file outside", func() error { return os.Symlink(outside, conf) }, nil},
		{"a link out of the root", func() error { return os.Symlink("../../../../../.."+outside, conf) }, nil},
		{"a FIFO", func() error { return unix.Mkfifo(conf, 0o644) }, nil},
		{"a directory", func() error { return os.Mkdir(conf, 0o755) }, nil},
		{"missing", func() error { return nil }, nil},
	} {
		if err := c.make(); err != nil {
			t.Fatal(err)
		}
		var got []string
		b, err := readConf(int(dir.Fd()), resolvConf)
		for _, s := range nameServers(b) {
			got = append(got, s.String())
		}
		if (err == nil) != (c.want != nil) || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, %v, want %v", c.name, got, err, c.want)
		}
		_ = os.Remove(conf)
	}
}

// TestResolvConfBesideRenames: a link with ".." is followed also while other directories are
// renamed.
func TestResolvConfBesideRenames(t *testing.T) {
	root := t.TempDir()
	conf, a, b := filepath.Join(root, resolvConf), filepath.Join(root, "a"), filepath.Join(root, "b")
	for _, err := range []error{os.MkdirAll(filepath.Dir(conf), 0o755), os.Mkdir(a, 0o755),
		os.WriteFile(filepath.Join(root, "stub"), []byte("nameserver 192.0.2.3\n"), 0o644), os.Symlink("../stub", conf)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	dir, err := os.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	read, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-read:
				return
			default:
				_, _ = os.Rename(a, b), os.Rename(b, a)
			}
		}
	}()
	for range 20000 {
		if _, err := readConf(int(dir.Fd()), resolvConf); err != nil {
			t.Error(err)
			break
		}
	}
	close(read)
	<-ended
}
