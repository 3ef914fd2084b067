package statetest_test

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/host/statedir"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// unpack writes the files of an archive below a folder of it to a directory.
func unpack(t *testing.T, archive, folder, dir string) {
	t.Helper()
	f, err := os.Open(archive)
	agenttest.Do(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	agenttest.Do(t, err)
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		agenttest.Do(t, err)
		name, ok := strings.CutPrefix(filepath.Clean(h.Name), folder)
		if !ok || h.Typeflag != tar.TypeReg {
			continue
		}
		b, err := io.ReadAll(r)
		path := filepath.Join(dir, name)
		agenttest.Do(t, err, os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, b, 0o600))
	}
}

// TestUpgrade starts agents on state that real earlier builds have written: one of the first format
// with gossip.db, and one before the DNS views. The resources are in force, and the inventory of
// the state has its files, so a later loss is noticed.
func TestUpgrade(t *testing.T) {
	for _, c := range []struct{ archive, folder string }{
		{"../losstest/testdata/release1.tgz", "a-newer/"}, {"testdata/before-views.tgz", ""},
	} {
		t.Run(filepath.Base(c.archive), func(t *testing.T) {
			t.Parallel()
			dir := agenttest.ShortDir(t)
			state := filepath.Join(dir, "state")
			agenttest.Do(t, os.Mkdir(filepath.Join(dir, "resources"), 0o755))
			agenttest.Write(t, filepath.Join(dir, "resources", "web.yaml"), dataplane)
			unpack(t, c.archive, c.folder, state)
			for range 2 {
				r := start(t, dir)
				if s, problems := r.status(t); !s.Ready || s.Store.Resources["MeshTimeout"] == 0 || len(s.Store.Damaged) > 0 {
					t.Errorf("resources %v, problems:\n%s", s.Store.Resources, problems)
				}
				r.ask(t, nil)
				if got := r.config(t); !strings.Contains(got, "inbound:10.0.0.1:80") {
					t.Errorf("config: %s", got)
				}
				r.stop()
			}
			d := statedir.Open(state)
			if f := d.Check(); f != nil || !d.Had(statedir.Database) || !d.Had(statedir.NodeKey) {
				t.Errorf("the inventory lacks files: %v", f)
			}
		})
	}
}

// TestUpgradeFaults spoils the pool's file of an earlier release before the first start of this
// one.
func TestUpgradeFaults(t *testing.T) {
	for _, fault := range []string{statedir.Missing, statedir.Directory, statedir.Link, statedir.Truncated} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			dir := agenttest.ShortDir(t)
			agenttest.Do(t, os.Mkdir(filepath.Join(dir, "resources"), 0o755))
			unpack(t, "../losstest/testdata/release1.tgz", "a-newer/", filepath.Join(dir, "state"))
			path := filepath.Join(dir, "state", statedir.OldPool)
			spoil(t, statedir.OldPool, fault, path)
			r := start(t, dir)
			s, problems := r.status(t)
			if suspended := !s.Ready && strings.Contains(problems, path+" "); suspended == (fault == statedir.Missing) {
				t.Errorf("suspended: %v, problems:\n%s", suspended, problems)
			}
			if r.stop(); fault == statedir.Missing {
				return
			}
			agenttest.Write(t, filepath.Join(dir, "state", statedir.AcceptLoss), "")
			if s, problems := start(t, dir).status(t); !s.Ready {
				t.Errorf("after the loss is accepted:\n%s", problems)
			}
		})
	}
}
