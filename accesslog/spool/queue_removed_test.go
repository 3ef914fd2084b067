package spool_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/accesslog/spool"
)

// TestQueueWithRemovedFiles removes files of a queue or its directory, or opens the directory for
// others, between writes. All lines must be moved once and in order, also by the next process.
func TestQueueWithRemovedFiles(t *testing.T) {
	remove := func(pattern string) func(dir string) error {
		return func(dir string) error {
			paths, err := filepath.Glob(filepath.Join(dir, pattern))
			for _, path := range paths {
				err = os.Remove(path)
			}
			return err
		}
	}
	for name, fault := range map[string]func(dir string) error{
		"segments": remove("*.lines"), "position": remove("position"), "lock": remove("lock"),
		"everything in the directory": remove("*"), "the directory": os.RemoveAll,
		"unsafe mode": func(dir string) error { return os.Chmod(dir, 0o777) },
		"moved":       func(dir string) error { return os.Rename(dir, dir+".moved") },
	} {
		t.Run(name, func(t *testing.T) {
			o := spool.QueueOptions{File: "/var/log/a.log", Dir: filepath.Join(t.TempDir(), "state", "spool", "file-a")}
			o.Roots = []string{filepath.Dir(filepath.Dir(o.Dir))}
			if err := os.Mkdir(o.Roots[0], 0o700); err != nil {
				t.Fatal(err)
			}
			q, _, err := spool.OpenQueue(o)
			if err != nil {
				t.Fatal(err)
			}
			var want, got bytes.Buffer
			put := func(from int) {
				t.Helper()
				for i := from; i < from+10; i++ {
					line := fmt.Appendf(nil, "%d\n", i)
					want.Write(line)
					if _, err := q.Put(t.Context(), line); err != nil {
						t.Fatalf("line %d: %v", i, err)
					}
				}
			}
			move := func() {
				t.Helper()
				_, lost, _, err := q.Move(t.Context(), func(_ context.Context, b []byte) (int, error) {
					n := bytes.IndexByte(b[len(b)/2:], '\n') + len(b)/2 + 1 // a part of it
					return got.Write(b[:n])
				})
				if err != nil || lost > 0 {
					t.Fatalf("%d lines lost, %v", lost, err)
				}
			}
			put(0)
			move()
			for round := range 2 {
				if err := fault(o.Dir); err != nil {
					t.Fatal(err)
				}
				_ = os.RemoveAll(o.Dir + ".moved")
				if err := q.Sync(); err != nil {
					t.Errorf("sync: %v", err)
				}
				put(10 + 10*round)
				move()
			}
			if err := q.Close(); err != nil {
				t.Error(err)
			}
			if st, err := os.Stat(o.Dir); err != nil || st.Mode().Perm() != 0o700 {
				t.Errorf("the directory: %v, %v", st.Mode(), err)
			}
			if q, _, err = spool.OpenQueue(o); err != nil {
				t.Fatal(err)
			}
			for n, _, _ := q.Lines(time.Now()); n > 0; n, _, _ = q.Lines(time.Now()) {
				move()
			}
			if !bytes.Equal(got.Bytes(), want.Bytes()) {
				t.Errorf("moved:\n%s\nwant:\n%s", &got, &want)
			}
			if err := q.Remove(); err != nil {
				t.Error(err)
			}
		})
	}
}
