package reconcile

import (
	"log/slog"
	"maps"
	"sync/atomic"
	"time"

	"github.com/nearside-mesh/nearside/agent/generate"
	"github.com/nearside-mesh/nearside/agent/mesh"
	"github.com/nearside-mesh/nearside/agent/store"
)

// vipKeeper remembers who has which virtual address, over passes and restarts. Readers may be many goroutines; keep is
// called by the one that makes the passes.
type vipKeeper struct {
	o     mesh.VIPOptions // without Known and Now
	store *store.Store
	log   *slog.Logger
	now   func() time.Time

	known atomic.Pointer[map[string]*mesh.VIPs] // by mesh
}

// openVIPs reads what an earlier run has stored, or has written to the file of an earlier version, which is removed.
func openVIPs(s *store.Store, oldFile string, o mesh.VIPOptions, now func() time.Time, log *slog.Logger) *vipKeeper {
	k := &vipKeeper{o: o, store: s, log: log, now: now}
	stored := s.Addresses()
	if len(stored) == 0 && oldFile != "" {
		stored = importVIPs(s, oldFile, log)
	}
	lists := map[string][]mesh.VIPEntry{}
	for service, addresses := range stored {
		name, e, err := decodeVIP(service + " " + addresses)
		if err != nil {
			log.Error("a stored virtual address cannot be used; the service may get another one", "service", service, "error", err)
			continue
		}
		lists[name] = append(lists[name], e)
	}
	known := make(map[string]*mesh.VIPs, len(lists))
	for name, list := range lists {
		known[name] = mesh.NewVIPs(list)
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
// for their sake: zero for never. settled says that there was nothing new. What the disk does not take is written with the
// next commit of the store.
func (k *vipKeeper) keep(meshes map[string]*generate.Mesh) (due time.Time, settled bool) {
	now := k.now()
	before := *k.known.Load()
	next := make(map[string]*mesh.VIPs, len(meshes))
	changes := map[string]string{}
	for name, m := range meshes {
		next[name] = m.View.VIPs()
		changedVIPs(changes, name, before[name], next[name])
		if at := next[name].Due(); !at.IsZero() && (due.IsZero() || at.Before(due)) {
			due = at
		}
	}
	for name, m := range before {
		if meshes[name] != nil {
			continue
		}
		left := m.Release(now, now.Add(k.o.Hold))
		if left != nil {
			next[name] = left
		}
		changedVIPs(changes, name, m, left)
	}
	k.known.Store(&next)
	if len(changes) > 0 {
		_ = k.store.SetAddresses(changes) // what it says is in the health of the store
	}
	return due, maps.Equal(before, next)
}

// changedVIPs adds what leads from one memory of a mesh to another one; nil is an empty one.
func changedVIPs(changes map[string]string, name string, before, next *mesh.VIPs) {
	if before == next {
		return
	}
	had := map[string]string{}
	if before != nil {
		for _, e := range before.Entries() {
			had[vipService(name, e)] = vipAddresses(e)
		}
	}
	if next != nil {
		for _, e := range next.Entries() {
			service, addresses := vipService(name, e), vipAddresses(e)
			if had[service] != addresses {
				changes[service] = addresses
			}
			delete(had, service)
		}
	}
	for service := range had {
		changes[service] = ""
	}
}
