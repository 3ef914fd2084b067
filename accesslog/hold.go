package accesslog

import (
	"maps"
	"os"
	"slices"
	"sync"
)

// NoHolder is a [Holder] that holds nothing: while this process is away, nobody reads. It is for tests and for programs
// that live as long as their writers.
func NoHolder() Holder { return none }

var none Holder = noHolder{}

type noHolder struct{}

func (noHolder) Hold(string, *os.File) error { return nil }
func (noHolder) Release(string) error        { return nil }
func (noHolder) Held() ([]string, error)     { return nil, nil }
func (noHolder) String() string              { return "nobody" }

// heldSet is a set of paths with their files.
type heldSet struct {
	mu    sync.Mutex
	files map[string]*os.File
}

func (h *heldSet) paths() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Sorted(maps.Keys(h.files))
}
