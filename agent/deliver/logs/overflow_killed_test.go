package logs_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/accesslog"
	"github.com/nearside-mesh/nearside/accesslog/accesslogtest"
	"github.com/nearside-mesh/nearside/accesslog/fifo"
	"github.com/nearside-mesh/nearside/agent/deliver/logs"
	"github.com/nearside-mesh/nearside/agent/host/logpaths"
	"github.com/nearside-mesh/nearside/rotation"
)

// readerVariable makes the test binary read a FIFO: DIR:FILE:SPOOL.
const readerVariable = "LOGS_TEST_READER"

// TestKilledWhileSpooling repeatedly kills a process that reads a FIFO into a rotated file, while
// the disk of the file is full and is emptied in turn. Each line must be in the files once, whole,
// and in order: lines pass from the FIFO to the spool, and from there to the file.
func TestKilledWhileSpooling(t *testing.T) {
	out, resize := smallDisk(t)
	dir, spool := filepath.Join(t.TempDir(), "fifo"), t.TempDir()
	arg := strings.Join([]string{dir, out, spool}, ":")
	path := filepath.Join(dir, "a")
	ps, err := openPipes(arg)
	if err == nil {
		err = ps.Set("owner", []fifo.Pipe{{Path: path, UID: os.Getuid(), GID: os.Getgid(), To: nowhere{}}})[0]
	}
	if err != nil {
		t.Fatal(err)
	}
	w, err := os.OpenFile(path, os.O_RDWR, 0) // also holds the FIFO while no process reads it
	if err != nil {
		t.Fatal(err)
	}
	ended, stop := context.WithCancel(t.Context())
	stop()
	if err := ps.Run(ended); err != nil { // closes them
		t.Fatal(err)
	}
	const count = 30_000
	output := make(chan error, 1)
	var taken atomic.Int64 // bytes in the FIFO or beyond
	all := numbered(0, count)
	go func() {
		for b := all; len(b) > 0; {
			n, err := w.Write(b[:min(len(b), 3777)])
			if err != nil {
				output <- err
				return
			}
			taken.Add(int64(n))
			b = b[n:]
		}
		output <- nil
	}()
	size := func() int { return len(stored(t, out)) }
	kills, spooled := 0, 0
	for ; size() < len(all); kills++ {
		passed, before := taken.Load(), size()
		if kills%2 == 1 || passed > int64(len(all)-100_000) { // space for some lines only
			resize(fmt.Sprintf("%dk", (before>>10)+256))
		}
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), readerVariable+"="+arg)
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		accesslogtest.Eventually(t, "progress", func() bool {
			now := size()
			return taken.Load() > passed+50_000 || now > before+50_000+kills*100 || now >= len(all)
		})
		if names, _ := filepath.Glob(spool + "/*/*.lines"); len(names) > 0 {
			spooled++
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	if err := <-output; err != nil {
		t.Fatal(err)
	}
	w.Close()
	sameLines(t, stored(t, out), all)
	t.Logf("%d kills, %d with a spool", kills, spooled)
	if spooled < 5 {
		t.Errorf("the spool was used only before %d of %d kills", spooled, kills)
	}
}

// nowhere is a destination that accepts nothing.
type nowhere struct{}

func (nowhere) Write(ctx context.Context, _ []byte) (int, error) {
	<-ctx.Done()
	return 0, ctx.Err()
}

// openPipes opens the FIFOs of an argument of readerVariable. The lines of existing ones go to the
// file.
func openPipes(arg string) (*fifo.Pipes, error) {
	parts := strings.SplitN(arg, ":", 3)
	return fifo.Open(fifo.Options{Dir: parts[0], Group: -1, Rest: 3 * time.Millisecond,
		Log: slog.New(slog.DiscardHandler),
		Found: func(string, map[string]string) accesslog.Destination {
			fs := logs.NewFiles(noPaths(), slog.New(slog.DiscardHandler))
			fs.Spool = logs.FileSpool{Dir: parts[2]}
			f, err := fs.Open(logpaths.AgentLog, rotation.Options{Path: parts[1], Limits: rotation.Limits{MaxFileSize: 1}})
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				return nil
			}
			go fs.Run(context.Background())
			return f
		}})
}

// readUntilKilled is the process of TestKilledWhileSpooling.
func readUntilKilled(arg string) int {
	ps, err := openPipes(arg)
	if err == nil {
		err = ps.Run(context.Background())
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}
