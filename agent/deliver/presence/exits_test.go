package presence_test

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nearside-mesh/nearside/agent/deliver/presence"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// TestExits starts processes, and checks that the end of each is reported once, whether it ends
// before or after it is added, and that others are not reported.
func TestExits(t *testing.T) {
	w, err := presence.NewExits()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- w.Run(ctx) }()
	ended := make(chan int, 16)
	start := func(i int, before bool) *exec.Cmd {
		t.Helper()
		cmd := exec.Command("sleep", "600")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		fd, err := unix.PidfdOpen(cmd.Process.Pid, 0)
		if err != nil {
			t.Fatal(err)
		}
		if before {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
		if err := w.Add(os.NewFile(uintptr(fd), "pidfd"), func() { ended <- i }); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	wait := func(want int) {
		t.Helper()
		select {
		case got := <-ended:
			if got != want {
				t.Fatalf("process %d has ended, want %d", got, want)
			}
		case <-time.After(agenttest.Patience):
			t.Fatalf("the end of process %d is not reported", want)
		}
	}
	first, _, third := start(1, false), start(2, false), start(3, false)
	_ = third.Process.Kill() // not reaped: its parent may be slow
	wait(3)
	_ = first.Process.Kill()
	wait(1)
	start(4, true)
	wait(4)
	cancel()
	if err := <-done; err != nil || len(ended) > 0 {
		t.Errorf("%v, %d more", err, len(ended))
	}
}
