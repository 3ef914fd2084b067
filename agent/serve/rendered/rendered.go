// Package rendered caches rendered resources of configs.
package rendered

import (
	"encoding/json"
	"sync"

	"github.com/nearside-mesh/nearside/agent/compute/generate"
)

// Limits of a [Cache] in bytes. The overhead per entry also bounds the number of entries.
const (
	maxSize  = 16 << 20
	overhead = 160
)

// Cache is a [generate.RenderCache] of bounded size. Rendering takes most of the time to show
// a config, and two configs have most resources in common. The zero value is empty. It is safe for
// concurrent use.
type Cache struct {
	mu sync.Mutex
	// When the recent entries fill half of the cache, they replace the older ones.
	recent, older map[generate.RenderKey]json.RawMessage
	size          int // of recent
}

// Get returns a rendered resource, or nil.
func (c *Cache) Get(k generate.RenderKey) json.RawMessage {
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
func (c *Cache) Drop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.recent, c.older, c.size = nil, nil, 0
}

// Put adds a rendered resource.
func (c *Cache) Put(k generate.RenderKey, v json.RawMessage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.put(k, v)
}

func (c *Cache) put(k generate.RenderKey, v json.RawMessage) {
	size := len(v) + overhead
	if size > maxSize/2 || c.recent[k] != nil {
		return
	}
	if c.recent == nil || c.size+size > maxSize/2 {
		c.older, c.recent, c.size = c.recent, map[generate.RenderKey]json.RawMessage{}, 0
	}
	c.recent[k] = v
	c.size += size
}
