package reconcile

import (
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/store"
)

// vipKeeper remembers who has which virtual address, over passes and restarts. Readers may be many
// goroutines; keep is called by the one that makes the passes.
type vipKeeper struct {
	o     mesh.VIPOptions // without Known and Now
	store *store.Store
	log   *slog.Logger
	now   func() time.Time

	known  atomic.Pointer[map[string]*mesh.VIPs] // by mesh
	served bool                                  // the first pass has had all its addresses
	// of the goroutine that makes the passes; nil: all that is known is on disk
	pending *pendingVIPs
}

// pendingVIPs is a memory that is on its way to the disk.
type pendingVIPs struct {
	next map[string]*mesh.VIPs
	done chan struct{} // closed when it is there, or the disk has refused it
	late atomic.Bool   // nobody waits for it any more
}

// openVIPs reads what an earlier run has stored, or has written to the file of an earlier version,
// which is removed.
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
			log.Error("a stored virtual address cannot be used; the service may get another one",
				"service", service, "error", err)
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

// Options are those of the next view of a mesh.
func (k *vipKeeper) Options(name string) mesh.VIPOptions {
	o := k.o
	o.Known, o.Now = (*k.known.Load())[name], k.now()
	return o
}

// addressWait is how long a pass waits for the disk to take new addresses.
const addressWait = 100 * time.Millisecond

// storing reports whether addresses are on their way to the disk still, which takes longer than a
// pass waits.
func (k *vipKeeper) storing() bool {
	if k.pending == nil {
		return false
	}
	select {
	case <-k.pending.done:
		k.known.Store(&k.pending.next)
		k.pending = nil
		return false
	default:
		return true
	}
}

// wait waits for addresses that are on their way to the disk.
func (k *vipKeeper) wait() {
	if k.pending != nil {
		<-k.pending.done
	}
}

// keep stores the addresses of a pass before any proxy is sent them, and returns when the next
// pass is due because addresses expire; zero means never. stored is false if the disk takes too
// long; keep then calls later once the addresses are stored. The next commit of the store writes
// addresses that the disk refused.
func (k *vipKeeper) keep(meshes map[string]*generate.Mesh, later func()) (due time.Time, stored bool) {
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
	if len(changes) == 0 {
		k.served = true
	} else {
		p := &pendingVIPs{next: next, done: make(chan struct{})}
		k.pending = p
		go func() {
			_ = k.store.SetAddresses(changes) // what it says is in the health of the store
			close(p.done)
			if p.late.Load() {
				later()
			}
		}()
		if !k.await(p) {
			return time.Time{}, false
		}
		k.pending = nil
	}
	k.known.Store(&next)
	return due, true
}

// await waits a while for the disk, and without an end where nobody has been served yet: proxies
// that have addresses from an earlier run would lose them. It reports whether the disk has taken
// them.
func (k *vipKeeper) await(p *pendingVIPs) bool {
	if first := !k.served; first {
		k.served = true
		<-p.done
		return true
	}
	patience := time.NewTimer(addressWait)
	defer patience.Stop()
	select {
	case <-p.done:
		return true
	case <-patience.C:
	}
	p.late.Store(true)
	select {
	case <-p.done: // before it knew
		return true
	default:
		return false
	}
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
