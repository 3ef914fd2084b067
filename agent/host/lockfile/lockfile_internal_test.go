package lockfile

import (
	"bufio"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
)

// TestLockIsReplacedOnce checks that at most one of several agents gets the lock if they start at
// the same time while another user holds the old file.
func TestLockIsReplacedOnce(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can start a process under another user id")
	}
	flock, err := exec.LookPath("flock")
	if err != nil {
		t.Skip(err)
	}
	for range 20 {
		dir, err := os.MkdirTemp("", "ns") // accessible to the other user
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		path := filepath.Join(dir, "lock")
		if err := errors.Join(os.Chmod(dir, 0o755), os.WriteFile(path, nil, 0o644)); err != nil {
			t.Fatal(err)
		}
		c := exec.Command("/bin/sh", "-c", `exec 9<"$1"; "$0" 9; echo; exec cat`, flock, path)
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 64201, Gid: 64201}}
		in, err1 := c.StdinPipe()
		out, err2 := c.StdoutPipe()
		if err := errors.Join(err1, err2, c.Start()); err != nil {
			t.Fatal(err)
		}
		if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		var (
			wg   sync.WaitGroup
			mu   sync.Mutex
			held []*File
		)
		for i := range 12 {
			wg.Go(func() {
				if i == 6 {
					in.Close() // the other user releases the lock while the agents start
				}
				l, err := Lock(path, slog.New(slog.DiscardHandler))
				var taken *HeldError
				if err != nil && !errors.As(err, &taken) {
					t.Error(err)
				}
				if l != nil {
					mu.Lock()
					held = append(held, l)
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		if len(held) > 1 {
			t.Fatalf("%d agents have the lock", len(held))
		}
		if len(held) == 0 { // two agents may have blocked each other
			l, err := Lock(path, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, l)
		}
		if !isAt(held[0].f, path) {
			t.Error("the lock is not the file of its name")
		}
		if _, err := Lock(path, slog.New(slog.DiscardHandler)); err == nil {
			t.Error("the lock was taken twice")
		}
		held[0].Release()
		_ = c.Wait()
	}
}
