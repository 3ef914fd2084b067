package reconcile

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/nearside-mesh/nearside/agent/generate"
	"github.com/nearside-mesh/nearside/agent/mesh"
)

// vipFile is where virtual addresses are remembered, below paths.state.
const VipFile = "vips"

// vipKeeper remembers who has which virtual address, over passes and restarts. Readers may be many goroutines; keep is
// called by the one that makes the passes.
type vipKeeper struct {
	o    mesh.VIPOptions // without Known and Now
	path string          // "": only in memory
	log  *slog.Logger
	now  func() time.Time

	known   atomic.Pointer[map[string]*mesh.VIPs] // by mesh
	pending bool                                  // the file is older than known
	failed  bool                                  // the last write was one that failed
}

// openVIPs reads what an earlier run has left. A file that cannot be read is put aside, and services get addresses
// as if they were all new.
func openVIPs(path string, o mesh.VIPOptions, now func() time.Time, log *slog.Logger) *vipKeeper {
	k := &vipKeeper{o: o, path: path, log: log, now: now}
	known := map[string]*mesh.VIPs{}
	if path != "" {
		read, err := readVIPs(path)
		switch {
		case err == nil:
			known = read
		case !os.IsNotExist(err):
			aside := path + ".damaged"
			log.Error("the file of virtual addresses cannot be used and is put aside; services whose addresses met may get others",
				"file", path, "as", aside, "error", err)
			if err := os.Rename(path, aside); err != nil {
				log.Error("the file of virtual addresses cannot be put aside", "file", path, "error", err)
			}
		}
	}
	k.known.Store(&known)
	return k
}

// options are those of the next view of a mesh.
func (k *vipKeeper) Options(name string) mesh.VIPOptions {
	o := k.o
	o.Known, o.Now = (*k.known.Load())[name], k.now()
	return o
}

// keep remembers the addresses of a pass, on disk before any proxy hears of them, and returns when the next pass is due
// for their sake: zero for never.
func (k *vipKeeper) keep(meshes map[string]*generate.Mesh) (due time.Time) {
	now := k.now()
	before := *k.known.Load()
	next := make(map[string]*mesh.VIPs, len(meshes))
	changed := false
	for name, m := range meshes {
		next[name] = m.View.VIPs()
		changed = changed || next[name] != before[name]
		if at := next[name].Due(); !at.IsZero() && (due.IsZero() || at.Before(due)) {
			due = at
		}
	}
	for name, m := range before {
		if meshes[name] != nil {
			continue
		}
		if left := m.Release(now, now.Add(k.o.Hold)); left != nil {
			next[name] = left
		}
		changed = changed || next[name] != m
	}
	if changed {
		k.known.Store(&next)
		k.pending = k.path != ""
	}
	if k.pending {
		k.save(next)
	}
	return due
}

// save writes the file. What the disk does not take is tried again with the next pass.
func (k *vipKeeper) save(all map[string]*mesh.VIPs) {
	err := replaceFile(k.path, encodeVIPs(all))
	switch {
	case err == nil:
		k.pending = false
		if k.failed {
			k.log.Info("virtual addresses are on disk again", "file", k.path)
		}
	case !k.failed:
		k.log.Error("virtual addresses cannot be written: after a restart, services whose addresses met may get others; "+
			"make room, or the directory writable", "file", k.path, "error", err)
	}
	k.failed = err != nil
}

// replaceFile puts a new file in the place of another, whole or not at all, and on disk when it returns nil.
func replaceFile(path string, data []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*") // mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return err
	}
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("make the name durable: %w", err)
	}
	defer d.Close()
	return d.Sync()
}
