package reconcile

import (
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/model/virtualip"
)

// vipCache holds the virtual addresses of services, and persists them in the store. Options is safe
// for concurrent use; all other methods are called by the goroutine that runs the passes.
type vipCache struct {
	o     virtualip.Options // without Known and Now
	store *store.Store
	log   *slog.Logger
	now   func() time.Time

	known  atomic.Pointer[map[string]*virtualip.Set] // by mesh
	served bool                                      // the first pass has had all of its addresses
	// used only by the goroutine that runs the passes; nil: all known addresses are on disk
	pending *pendingVIPs
}

// pendingVIPs holds addresses that are being written to disk.
type pendingVIPs struct {
	next map[string]*virtualip.Set
	done chan struct{} // closed when they are on disk, or the write has failed
	late atomic.Bool   // no pass waits for them anymore
}

// openVIPs loads the stored addresses, or imports the file of an earlier version.
func openVIPs(s *store.Store, oldFile string, o virtualip.Options, now func() time.Time, log *slog.Logger) *vipCache {
	k := &vipCache{o: o, store: s, log: log, now: now}
	stored := s.Addresses()
	if len(stored) == 0 && oldFile != "" {
		stored = importVIPs(s, oldFile, log)
	}
	lists := map[string][]virtualip.Entry{}
	for service, addresses := range stored {
		name, e, err := decodeVIP(service + " " + addresses)
		if err != nil {
			log.Error("a stored virtual address is invalid; the service may get another one",
				"service", service, "error", err)
			continue
		}
		lists[name] = append(lists[name], e)
	}
	known := make(map[string]*virtualip.Set, len(lists))
	for name, list := range lists {
		known[name] = virtualip.New(list)
	}
	k.known.Store(&known)
	return k
}

// Options returns the options for the next view of a mesh.
func (k *vipCache) Options(name string) virtualip.Options {
	o := k.o
	o.Known, o.Now = (*k.known.Load())[name], k.now()
	return o
}

// addressWait is how long a pass waits for new addresses to be written to disk.
const addressWait = 100 * time.Millisecond

// storing reports whether a write of addresses that took longer than addressWait is still pending.
func (k *vipCache) storing() bool {
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

// wait waits for a pending write.
func (k *vipCache) wait() {
	if k.pending != nil {
		<-k.pending.done
	}
}

// save stores the addresses of a pass before any proxy gets them. It returns when addresses expire
// next, or zero. stored is false if the disk takes too long; then save calls later when the write
// ends. Addresses whose write failed are written with the next commit of the store. Meshes that are
// kept do not lose theirs.
func (k *vipCache) save(meshes map[string]*generate.Mesh, kept func(mesh string) bool,
	later func()) (due time.Time, stored bool) {
	now := k.now()
	before := *k.known.Load()
	next := make(map[string]*virtualip.Set, len(meshes))
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
		if kept(name) {
			next[name] = m
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
			_ = k.store.SetAddresses(changes) // errors are part of the health of the store
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

// await waits at most addressWait for a write, but without limit before any proxy was served:
// proxies with addresses from an earlier run would lose them. It reports whether the write has
// ended.
func (k *vipCache) await(p *pendingVIPs) bool {
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
	case <-p.done: // before it read late
		return true
	default:
		return false
	}
}

// changedVIPs adds the changes between two sets of addresses of a mesh; nil is an empty set.
func changedVIPs(changes map[string]string, name string, before, next *virtualip.Set) {
	if before == next {
		return
	}
	changed, gone := next.Changes(before)
	for _, e := range changed {
		changes[vipService(name, e)] = vipAddresses(e)
	}
	for _, e := range gone {
		changes[vipService(name, e)] = ""
	}
}
