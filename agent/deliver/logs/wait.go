package logs

import "time"

// waits reports whether the config of a proxy may still wait for its destinations. It starts the
// limit of the wait. m.mu is held.
func (m *Manager) waits(p *proxy) bool {
	if p.limit == nil {
		p.limit = time.AfterFunc(m.o.Limit, func() {
			m.mu.Lock()
			p.expired = true
			m.mu.Unlock()
			m.changed()
		})
	}
	return !p.expired
}

// retries reports whether the config of a proxy waits because destinations have failed, and
// schedules a retry. m.mu is held.
func (m *Manager) retries(id string, p *proxy) bool {
	if !p.failed || !m.waits(p) {
		return false
	}
	if p.retry == nil {
		p.retry = time.AfterFunc(retryAfter, func() {
			m.mu.Lock()
			defer m.mu.Unlock()
			if p.retry = nil; m.proxies[id] == p && !p.left {
				m.request(id, p)
			}
		})
	}
	return true
}

// recordResult records whether destinations may be ready after a retry, and ends the wait of a
// config if not. m.mu is held.
func (m *Manager) recordResult(id string, p *proxy, failed bool) {
	p.failed = failed
	if failed && p.limit != nil {
		m.retries(id, p)
		return
	}
	if !failed && p.limit != nil {
		p.limit.Stop()
		p.limit, p.expired = nil, false
	}
}

func (m *Manager) changed() {
	if m.o.Changed != nil {
		m.o.Changed()
	}
}
