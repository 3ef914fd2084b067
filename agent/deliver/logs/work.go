package logs

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nearside-mesh/nearside/accesslog/fifo"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/deliver/status"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/rotation"
)

// Timeouts for flushing the logs of all Envoys at shutdown, and of one Envoy.
const (
	stopFlush   = 2 * time.Second
	reopenAfter = time.Second // one Envoy
)

// Run creates and reads FIFOs, and delivers lines, until ctx ends. Then it makes the Envoys flush
// their logs, reads the FIFOs, and writes all buffered lines to disk. Later lines wait in the
// FIFOs.
func (m *Manager) Run(ctx context.Context) error {
	rest := context.WithoutCancel(ctx)
	stopOutputs := m.outs.run(rest)
	m.routes.openSpools()
	reading, stopReading := context.WithCancel(rest)
	var readers, helpers sync.WaitGroup
	helpers.Add(1)
	go func() {
		defer helpers.Done()
		m.reopenLogs(ctx)
	}()
	var running Pipes
	read := func() {
		m.open()
		m.mu.Lock()
		pipes := m.pipes
		m.mu.Unlock()
		if pipes == nil || running != nil {
			return
		}
		running = pipes
		readers.Add(1)
		go func() {
			defer readers.Done()
			if err := pipes.Run(reading); err != nil && reading.Err() == nil {
				m.o.Log.Error("stopped reading the access-log FIFOs; restart the agent", "error", err)
			}
		}()
	}
	every := time.NewTicker(m.o.Every)
	defer every.Stop()
	for read(); ctx.Err() == nil; {
		select {
		case <-ctx.Done():
		case <-m.wake:
		case <-every.C:
			read()
			m.checkAll()
		}
		m.updateDirty()
	}
	m.flushAll(rest)
	stopReading()
	readers.Wait()
	stopOutputs()
	helpers.Wait()
	return nil
}

// reopenLogs asks Envoys to reopen their logs after FIFOs were replaced.
func (m *Manager) reopenLogs(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.reopen.wake:
			for _, id := range m.reopen.take() {
				m.flush(ctx, id)
			}
		}
	}
}

// flush makes one Envoy flush its logs.
func (m *Manager) flush(ctx context.Context, id string) {
	if m.o.Reopen == nil || ctx.Err() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, reopenAfter)
	defer cancel()
	if err := m.o.Reopen(ctx, id); err != nil && ctx.Err() == nil {
		m.o.Log.Debug("cannot flush the logs of an Envoy", "node", id, "error", err)
	}
}

// flushAll makes all Envoys flush their logs, and reads the FIFOs.
func (m *Manager) flushAll(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, stopFlush)
	defer cancel()
	m.mu.Lock()
	pipes := m.pipes
	ids := slices.DeleteFunc(slices.Collect(maps.Keys(m.proxies)), func(id string) bool {
		return m.proxies[id].found || len(m.proxies[id].recent) == 0
	})
	m.mu.Unlock()
	if pipes == nil {
		return
	}
	var all sync.WaitGroup
	for chunk := range slices.Chunk(ids, max(1, (len(ids)+7)/8)) { // eight at a time
		all.Add(1)
		go func() {
			defer all.Done()
			for _, id := range chunk {
				m.flush(ctx, id)
				_ = pipes.Flush(ctx, id) // unread data stays in the FIFO
			}
		}()
	}
	all.Wait()
}

// checkAll schedules an update of all proxies, and closes unused outputs.
func (m *Manager) checkAll() {
	m.mu.Lock()
	now := time.Now()
	for id, p := range m.proxies {
		if p.found && now.After(m.opened.Add(m.o.FoundFor)) {
			p.left = true // its proxy did not connect
		}
		if !p.found || p.left {
			m.request(id, p)
		}
	}
	pipes := m.pipes
	used, routes := map[outputKey]bool{}, map[string]bool{}
	for _, p := range m.proxies {
		maps.Copy(used, usedBy(p.pipes))
		for i := range p.pipes {
			routes[p.pipes[i].Route] = true
		}
	}
	m.mu.Unlock()
	m.routes.release(routes)
	if pipes == nil {
		return
	}
	for path, st := range pipes.Stats() { // includes FIFOs of proxies that have left
		if p, ok := pipeOf(path, st.Labels); ok {
			used[keyOf(&p)] = true
		}
	}
	m.outs.release(used)
}

// updateDirty updates all requested proxies.
func (m *Manager) updateDirty() {
	changed := false
	limits := m.limits()
	for {
		m.mu.Lock()
		ids := slices.Sorted(maps.Keys(m.dirty))
		clear(m.dirty)
		m.mu.Unlock()
		if len(ids) == 0 {
			break
		}
		for _, id := range ids {
			if m.update(id, limits) {
				changed = true
			}
		}
		limits = m.limits()
	}
	if changed {
		m.changed()
	}
}

// limits returns the limits of each file. If several proxies use a file, the first by name
// determines them.
func (m *Manager) limits() map[outputKey]rotation.Limits {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[outputKey]rotation.Limits{}
	for _, id := range slices.Sorted(maps.Keys(m.proxies)) {
		for i := range m.proxies[id].pipes {
			p := &m.proxies[id].pipes[i]
			if _, known := out[keyOf(p)]; p.Kind == draft.PipeFile && !known {
				out[keyOf(p)] = p.Rotation
			}
		}
	}
	return out
}

// update prepares the destinations of one proxy, and reports whether the result differs from the
// last one returned by Prepare.
func (m *Manager) update(id string, limits map[outputKey]rotation.Limits) (changed bool) {
	m.mu.Lock()
	p := m.proxies[id]
	if p == nil {
		m.mu.Unlock()
		return false
	}
	asked, list, peer, known, left, process, pod := p.asked, p.pipes, p.peer, p.known, p.left, p.process, p.pod
	now := time.Now()
	maps.DeleteFunc(p.recent, func(_ string, w wantUntil) bool { return now.After(w.until) })
	for i := range list {
		if list[i].Kind != draft.PipeOTLP {
			p.recent[list[i].Path] = wantUntil{list[i], now.Add(lingerFor)}
		}
	}
	recent := maps.Clone(p.recent)
	pipes, broken := m.pipes, m.broken
	m.mu.Unlock()

	missing, failed := map[string]status.Missing{}, false
	switch {
	case left:
		m.leave(id, pipes)
	case pipes == nil:
		for i := range list {
			missing[list[i].ID()] = status.Missing{Reason: "the agent cannot use " + m.o.Dir + ": " + broken.Error()}
			failed = true
		}
	default:
		process, failed = m.prepare(id, &request{list, recent, limits, peer, known, process, pod}, pipes, missing)
	}

	m.mu.Lock()
	defer m.mu.Unlock()
	if left && p.left && p.asked == asked {
		delete(m.proxies, id)
	}
	p.done, p.missing, p.updated, p.process = asked, missing, now, process
	if p.asked == p.done {
		m.recordResult(id, p, failed && !left)
		p.good = slices.DeleteFunc(slices.Clone(list), func(x draft.Pipe) bool { _, is := missing[x.ID()]; return is })
		if p.ready != nil {
			close(p.ready)
			p.ready = nil
		}
	}
	m.late = false
	return !left && p.returned != nil && !maps.Equal(p.returned, missing)
}

// leave releases the FIFOs of a proxy.
func (m *Manager) leave(id string, pipes Pipes) {
	m.reopen.add(id)
	if pipes != nil {
		pipes.Gone(id)
	}
}

// request describes the needs of a proxy.
type request struct {
	pipes   []draft.Pipe
	recent  map[string]wantUntil // current pipes, and recently used ones
	limits  map[outputKey]rotation.Limits
	peer    access.Peer
	known   bool
	process string // process that last got the FIFOs
	pod     string // uid of the pod in whose directory the FIFOs have names; "": none
}

// prepare creates FIFOs and routes, and records in missing why some are not ready. It returns the
// process that has them now.
func (m *Manager) prepare(id string, r *request, pipes Pipes,
	missing map[string]status.Missing) (process string, failed bool) {
	if why := m.unreachable(r.peer, r.known); why != "" {
		for i := range r.pipes {
			missing[r.pipes[i].ID()] = status.Missing{Reason: why, EnvoyWrites: r.pipes[i].Fallback}
		}
		return r.process, false
	}
	process = m.processOf(r.peer)
	if process != r.process && !m.lives(r.process) {
		pipes.NewWriter(id)
	}
	uid, gid := -1, -1
	if r.peer.Local && (!r.peer.Foreign || r.pod != "") {
		uid, gid = int(r.peer.UID), int(r.peer.GID)
	}
	now := map[string]bool{}
	for i := range r.pipes {
		now[r.pipes[i].Path] = true
		if p := &r.pipes[i]; p.Kind == draft.PipeOTLP {
			if uid < 0 {
				missing[p.ID()] = status.Missing{Reason: "the user of its Envoy is unknown, and only this user may send " +
					"records: connect the Envoy over the xDS socket, as a user of this host"}
			} else if err := m.routes.set(id, r.peer.UID, r.pod, p); err != nil {
				missing[p.ID()] = status.Missing{Reason: err.Error()}
			}
		}
	}
	var want []fifo.Pipe
	for _, path := range slices.Sorted(maps.Keys(r.recent)) {
		p := r.recent[path].pipe
		if l, ok := r.limits[keyOf(&p)]; ok {
			p.Rotation = l
		}
		to, err := m.outs.of(&p)
		if err != nil {
			if now[path] {
				var refused refusedError
				missing[path], failed = status.Missing{Reason: err.Error()}, failed || !errors.As(err, &refused)
			}
			continue
		}
		want = append(want, fifo.Pipe{Path: path, UID: uid, GID: gid, To: to, Link: r.pod, Labels: labelsOf(id, process, &p)})
	}
	for i, err := range pipes.Set(id, want) {
		if err != nil && now[want[i].Path] {
			missing[want[i].Path], failed = status.Missing{Reason: err.Error()}, true
		}
	}
	return process, failed
}
