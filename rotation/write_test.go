package rotation_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nearside-mesh/nearside/rotation"
	"gopkg.in/natefinch/lumberjack.v2"
	"pgregory.net/rapid"
)

// TestRefusedBatches checks that Write refuses partial lines, and fails after Close.
func TestRefusedBatches(t *testing.T) {
	path := newPath(t)
	f := open(t, rotation.Options{Path: path})
	if n, err := f.Write(context.Background(), []byte("a\nb")); n != 0 || !errors.Is(err, rotation.ErrUnterminated) {
		t.Errorf("half a line: %d, %v", n, err)
	}
	if n, err := f.Write(context.Background(), nil); n != 0 || err != nil {
		t.Errorf("nothing: %d, %v", n, err)
	}
	write(t, f, "\x00\xff\r\n\n")
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	for name, call := range map[string]func() error{
		"Write":  func() error { _, err := f.Write(context.Background(), []byte("a\n")); return err },
		"Rotate": f.Rotate, "Reopen": f.Reopen,
		"Run": func() error { return f.Run(context.Background()) },
	} {
		if err := call(); !errors.Is(err, rotation.ErrClosed) {
			t.Errorf("%s after Close: %v", name, err)
		}
	}
	if got := read(t, path); got != "\x00\xff\r\n\n" {
		t.Errorf("the file holds %q", got)
	}
}

// TestRunOnce checks that Run fails while it is active, can be repeated, and ends with Close.
func TestRunOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, err := rotation.Open(rotation.Options{Path: newPath(t)})
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			stop := run(t, f)
			synctest.Wait()
			if err := f.Run(context.Background()); !errors.Is(err, rotation.ErrRunning) {
				t.Error(err)
			}
			stop()
		}
		ended := make(chan error)
		go func() { ended <- f.Run(context.Background()) }()
		synctest.Wait()
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestReopen checks that Reopen closes a moved file at once.
func TestReopen(t *testing.T) {
	path := newPath(t)
	f := open(t, rotation.Options{Path: path, Sync: rotation.SyncEachBatch})
	write(t, f, "one\n")
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	if err := f.Reopen(); err != nil {
		t.Fatal(err)
	}
	write(t, f, "two\n")
	if a, b := read(t, path+".1"), read(t, path); a != "one\n" || b != "two\n" {
		t.Errorf("%q, %q", a, b)
	}
}

// TestNamesAreThoseOfLumberjack checks that backups of lumberjack and of this package have the same
// names.
func TestNamesAreThoseOfLumberjack(t *testing.T) {
	path := newPath(t)
	theirs := &lumberjack.Logger{Filename: path}
	for _, s := range []string{"one\n", "two\n"} {
		if _, err := theirs.Write([]byte(s)); err != nil {
			t.Fatal(err)
		}
		if err := theirs.Rotate(); err != nil {
			t.Fatal(err)
		}
		theirs.Close()
		// lumberjack names have milliseconds, and it overwrites a backup of the same name.
		<-time.After(2 * time.Millisecond)
	}
	f := open(t, rotation.Options{Path: path})
	write(t, f, "three\n")
	if err := f.Rotate(); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(contents(t, path), ""); got != "one\ntwo\nthree\n" {
		t.Errorf("content is %q", got)
	}
}

// TestModel compares files with a list of lines, under random batches, rotations, restarts, and
// clock changes.
func TestModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		path, c := newPath(t), &clock{start}
		limit := rapid.Int64Range(0, 60).Draw(rt, "limit")
		opts := rotation.Options{Path: path, Now: c.Now, Sync: rotation.SyncNever,
			Compress: rapid.Bool().Draw(rt, "compress"),
			Limits: rotation.Limits{MaxFiles: rapid.IntRange(0, 4).Draw(rt, "files"),
				MaxFileAge: rapid.IntRange(0, 3).Draw(rt, "age")}}.WithMaxBytes(limit)
		f, err := rotation.Open(opts)
		if err != nil {
			rt.Fatal(err)
		}
		defer func() { f.Close() }()
		var sent strings.Builder
		number, latest := 0, ""
		rt.Repeat(map[string]func(*rapid.T){
			"write": func(rt *rapid.T) {
				n := rapid.IntRange(1, 12).Draw(rt, "lines")
				b := lines(number, number+n)
				if rapid.IntRange(0, 5).Draw(rt, "long") == 0 {
					b += strings.Repeat("x", rapid.IntRange(0, 200).Draw(rt, "length")) + "\n"
				}
				number += n
				if m, err := f.Write(context.Background(), []byte(b)); err != nil || m != len(b) {
					rt.Fatalf("Write: %d, %v", m, err)
				}
				sent.WriteString(b)
			},
			"rotate": func(rt *rapid.T) {
				if err := f.Rotate(); err != nil {
					rt.Fatal(err)
				}
			},
			"restart": func(rt *rapid.T) {
				if err := f.Close(); err != nil {
					rt.Fatal(err)
				}
				if f, err = rotation.Open(opts); err != nil {
					rt.Fatal(err)
				}
			},
			"clock": func(rt *rapid.T) {
				c.now = c.now.Add(rapid.SampledFrom([]time.Duration{-time.Hour, -time.Millisecond, time.Millisecond, time.Second,
					11 * time.Hour}).Draw(rt, "by"))
			},
			"": func(rt *rapid.T) {
				files := contents(t, path)
				if got := strings.Join(files, ""); !strings.HasSuffix(sent.String(), got) ||
					opts.Limits.MaxFiles == 0 && opts.Limits.MaxFileAge == 0 && got != sent.String() {
					rt.Fatalf("content is %q of %q", got, sent.String())
				}
				for _, file := range files {
					if limit > 0 && int64(len(file)) > limit && strings.Count(file, "\n") != 1 {
						rt.Fatalf("a file holds %q, limit %d", file, limit)
					}
				}
				names := backups(t, path)
				if m := opts.Limits.MaxFiles; m > 0 && len(names) > m {
					rt.Fatalf("%d backups, limit %d", len(names), m)
				}
				if n := len(names); n > 0 {
					if names[n-1] < latest {
						rt.Fatalf("the latest name went from %s back to %s", latest, names[n-1])
					}
					latest = names[n-1]
				}
			},
		})
	})
}

// FuzzNames checks that a backup name has exactly one timestamp, and that the timestamp yields the
// name.
func FuzzNames(f *testing.F) {
	for _, name := range []string{"access-2026-03-01T12-00-00.000.log", "access-2026-03-01T12-00-00.000.log.gz",
		"access-2026-03-01T12-00-00,000.log", "access-2026-02-30T12-00-00.000.log", "access-9999-12-31T23-59-59.999.log",
		"access-0000-01-01T00-00-00.000.log", "access-.log", "access-2026-03-01T12-00-00.000.log.gz.gz", "access"} {
		f.Add("access.log", name)
		f.Add("access", name)
		f.Add(".log", name)
		f.Add("a-b.log.gz", name)
	}
	f.Fuzz(func(t *testing.T, base, name string) {
		stamp, gz, ok := rotation.ParseName(base, name)
		if !ok {
			return
		}
		want := rotation.BackupName(base, stamp)
		if gz {
			want += ".gz"
		}
		if name != want || stamp < 0 {
			t.Errorf("%q of %q is read as %d, which makes %q", name, base, stamp, want)
		}
		if reparsed, gz2, ok := rotation.ParseName(base, want); !ok || reparsed != stamp || gz2 != gz {
			t.Errorf("%q is read as %d, then as %d", name, stamp, reparsed)
		}
		if name == base {
			t.Errorf("the active file %q is a backup", name)
		}
	})
}
