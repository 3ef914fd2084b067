package fifo

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/accesslog"
	"github.com/nearside-mesh/nearside/accesslog/accesslogtest"
	"github.com/nearside-mesh/nearside/rotation"
)

const readerVariable = "ACCESSLOG_TEST_READER"

// TestPipeKilledReader repeatedly kills a process that reads into a rotated file, while partial
// lines are written. Each line must be in the files once, whole, and in order.
func TestPipeKilledReader(t *testing.T) {
	dir, h := pipeDir(t), newHolding(t)
	path, logs := filepath.Join(dir, "a"), filepath.Join(t.TempDir(), "logs")
	out := filepath.Join(logs, "out.log")
	ps, stop := startPipes(t, Options{Dir: dir, Group: -1, Holder: h})
	setOne(t, ps, path, &sink{})
	stop()
	w := openWriter(t, path)
	var want bytes.Buffer
	output := make(chan error, 1)
	for i := range 20000 {
		fmt.Fprintf(&want, "line %d %s\n", i, strings.Repeat("p", i%300))
	}
	go func() {
		b := want.Bytes()
		for len(b) > 0 {
			n, err := w.Write(b[:min(len(b), 777)])
			if err != nil {
				output <- err
				return
			}
			b = b[n:]
			<-time.After(10 * time.Microsecond)
		}
		output <- w.Close()
	}()
	content := func() (b []byte) {
		names, _ := filepath.Glob(logs + "/out*.log") // the backups in order, then the active file
		for _, name := range names {
			if one, err := os.ReadFile(name); err == nil {
				b = append(b, one...)
			}
		}
		return b
	}
	size := func() (n int) { return len(content()) }
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	kills := 0
	last := want.Bytes()[bytes.LastIndex(want.Bytes(), []byte("line 19999 ")):]
	finished := func() bool { return bytes.HasSuffix(content(), last) } // a kill can tear a line
	for ; !finished(); kills++ {
		cmd := exec.CommandContext(t.Context(), self)
		cmd.Env = append(os.Environ(), readerVariable+"="+dir+":"+out)
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		before := size()
		accesslogtest.Eventually(t, "progress", func() bool { return size() > before+10*kills || finished() })
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	if err := <-output; err != nil {
		t.Fatal(err)
	}
	got := content()
	if !bytes.Equal(got, want.Bytes()) {
		line := func(b []byte) int { return 1 + bytes.Count(b, []byte{'\n'}) }
		same := 0
		for same < min(len(got), want.Len()) && got[same] == want.Bytes()[same] {
			same++
		}
		t.Errorf("%d bytes are there, %d were written, and differ from line %d: %.200q",
			len(got), want.Len(), line(got[:same]), got[same:])
	}
	t.Logf("%d kills", kills)
}

// readUntilKilled is the process of TestPipeKilledReader and TestPipeLockOfADeadProcess. It writes
// a line to standard output after it has locked the directory.
func readUntilKilled(arg string) int {
	dir, out, _ := strings.Cut(arg, ":")
	f, err := rotation.Open(rotation.Options{Path: out, Limits: rotation.Limits{MaxFileSize: 1}})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ps, err := Open(Options{Dir: dir, Group: -1, Rest: 3 * time.Millisecond, Log: slog.New(slog.DiscardHandler),
		Found: func(string, map[string]string) accesslog.Destination { return f }})
	if err == nil {
		fmt.Println("open")
		err = ps.Run(context.Background())
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}
