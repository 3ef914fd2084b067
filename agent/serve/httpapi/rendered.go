package httpapi

import (
	"encoding/json"
	"sync"

	"github.com/nearside-mesh/nearside/agent/compute/generate"
)

// Shed drops the caches of the server, except those that a running check needs.
func (s *Server) Shed() {
	s.rendered.Drop()
	s.writer.Shed()
}

// Limits of a [RenderCache] in bytes. The overhead per entry also bounds the number of entries.
const (
	maxRendered      = 16 << 20
	renderedOverhead = 160
)

// RenderCache is a [generate.RenderCache] of bounded size. Rendering takes most of the time to show
// a config, and two configs have most resources in common. The zero value is empty. It is safe for
// concurrent use.
type RenderCache struct {
	mu sync.Mutex
	// When the recent entries fill half of the cache, they replace the older ones.
	recent, older map[generate.RenderKey]json.RawMessage
	size          int // of recent
}

// Get returns a rendered resource, or nil.
func (c *RenderCache) Get(k generate.RenderKey) json.RawMessage {
	c.mu.Lock()
	defer c.mu.Unlock()
	if v := c.recent[k]; v != nil {
		return v
	}
	v := c.older[k]
	if v != nil {
		c.put(k, v)
	}
	return v
}

// Drop removes all entries.
func (c *RenderCache) Drop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.recent, c.older, c.size = nil, nil, 0
}

// Put adds a rendered resource.
func (c *RenderCache) Put(k generate.RenderKey, v json.RawMessage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.put(k, v)
}

func (c *RenderCache) put(k generate.RenderKey, v json.RawMessage) {
	size := len(v) + renderedOverhead
	if size > maxRendered/2 || c.recent[k] != nil {
		return
	}
	if c.recent == nil || c.size+size > maxRendered/2 {
		c.older, c.recent, c.size = c.recent, map[generate.RenderKey]json.RawMessage{}, 0
	}
	c.recent[k] = v
	c.size += size
}
