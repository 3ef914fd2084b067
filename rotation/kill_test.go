package rotation_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/rotation"
)

// writerVariable makes the test binary write to the file that it names.
const writerVariable = "ROTATION_TEST_WRITER"

// writeUntilKilled writes numbered lines, and prints the number of each stored line.
func writeUntilKilled(path string) int {
	f, err := rotation.Open(rotation.Options{Path: path, Compress: true}.WithMaxBytes(4096))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	go f.Run(context.Background())
	for i := 0; ; i++ {
		if _, err := f.Write(context.Background(), []byte(lines(i, i+1))); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		fmt.Println(i)
	}
}

// TestKilledUnderLoad kills a writer and checks that its stored lines survive, that a torn line
// gets its LF and is counted, that later lines are whole, and that the lock has ended.
func TestKilledUnderLoad(t *testing.T) {
	path := newPath(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), writerVariable+"="+path)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stored := -1
	for in := bufio.NewScanner(out); in.Scan(); {
		if _, err := fmt.Sscan(in.Text(), &stored); err != nil {
			t.Fatal(err)
		}
		if stored == 3000 {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	cmd.Wait()
	if stored < 3000 {
		t.Fatalf("the writer ended after line %d", stored)
	}
	// It may have been killed between the renaming of the file and the creation of the next.
	half, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o640)
	if err == nil {
		_, err = half.WriteString("half of a li")
		half.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	f := open(t, rotation.Options{Path: path, Compress: true}.WithMaxBytes(4096))
	write(t, f, "after\n")
	if s := f.Stats(); s.TornTails != 1 {
		t.Errorf("stats %+v", s)
	}
	// A backup may be present both plain and compressed if the writer was killed in between.
	var all []string
	for _, name := range backups(t, path) {
		if plain := strings.TrimSuffix(name, ".gz"); plain != name && exists(sibling(path, plain)) {
			continue
		}
		all = append(all, read(t, sibling(path, name)))
	}
	got, ok := strings.CutSuffix(strings.Join(append(all, read(t, path)), ""), "half of a li\nafter\n")
	count := strings.Count(got, "\n")
	if !ok || count <= stored || got != lines(0, count) {
		t.Errorf("%d lines are stored, %d there, last %q", stored+1, count, got[max(0, len(got)-100):])
	}
}
