package agent

import (
	"slices"
	"sync"

	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/model/api"
)

// LogTail keeps the end of the agent's log in memory, for "nearside debug bundle". It is safe for
// concurrent use.
type LogTail struct {
	mu    sync.Mutex
	lines [][]byte // oldest first
	size  int      // bytes of lines
}

// tailBytes is how much a LogTail keeps.
const tailBytes = 256 << 10

// Write keeps a line.
func (l *LogTail) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines, l.size = append(l.lines, slices.Clone(line)), l.size+len(line)
	for l.size > tailBytes && len(l.lines) > 1 {
		l.size -= len(l.lines[0])
		l.lines = l.lines[1:]
	}
	return len(line), nil
}

// text returns the lines without secrets.
func (l *LogTail) text() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return []byte(clip.Secrets(string(slices.Concat(l.lines...))))
}

// debugText returns an item of GET /v1/debug/{item}.
func (a *Agent) debugText(item string) ([]byte, *api.Error) {
	switch {
	case item == "config":
		b, err := a.cfg.Load().YAML(nil)
		if err != nil {
			return nil, api.NewInvalid(err.Error())
		}
		return []byte(clip.Secrets(string(b))), nil
	case item == "log" && a.deps.LogTail != nil:
		return a.deps.LogTail.text(), nil
	}
	return nil, api.NewNotFound("there is no %q; ask for config or log", item)
}
