package httpapi

import (
	"encoding/json"
	"sync"

	"github.com/nearside-mesh/nearside/agent/compute/generate"
)

// Shed gives up what the server remembers to save work, but for what a check that is under way
// needs.
func (s *Server) Shed() {
	s.rendered.Drop()
	s.writer.Shed()
}

// Bounds of a [RenderCache], in bytes. The overhead of an entry bounds their number too.
const (
	maxRendered      = 16 << 20
	renderedOverhead = 160
)

// RenderCache is a [generate.RenderCache] of bounded size: rendering a config is most of the work
// of showing it, and of two configs nearly everything is the same. The zero value is empty. It is
// safe for concurrent use.
type RenderCache struct {
	mu sync.Mutex
	// When the recent entries take half of the space, they become the older ones, which are dropped.
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

// Drop forgets all.
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
