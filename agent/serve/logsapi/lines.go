package logsapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"

	"github.com/nearside-mesh/nearside/agent/model/api"
)

// errLimit ends an answer that has enough lines.
var errLimit = errors.New("limit reached")

// lines writes JSON objects, one per line, up to a limit.
type lines struct {
	w        io.Writer
	node     string // added to each object, unless it is empty
	left     int    // lines
	bytes    int    // limit of all lines; 0: none
	count    int
	size     int
	deadline func() // called before each write; nil: none
	tail     *tail  // retains lines instead of writing them; nil: none
	flush    func() // called after each write; nil: none
}

// Write writes whole lines. It returns errLimit if there are more lines than the limit.
func (l *lines) Write(p []byte) (int, error) {
	if l.tail != nil {
		l.tail.retain(p)
		return len(p), nil
	}
	var out []byte
	var err error
	for rest := p; len(rest) > 0; {
		end := bytes.IndexByte(rest, '\n') + 1
		if end == 0 {
			end = len(rest)
		}
		line := rest[:end]
		rest = rest[end:]
		if l.left <= 0 || l.bytes > 0 && l.size+len(line) > l.bytes {
			err = errLimit
			break
		}
		if l.node != "" && len(line) > 2 && line[0] == '{' {
			name, _ := json.Marshal(l.node) // a string
			out = append(append(append(append(out, `{"node":`...), name...), ','), line[1:]...)
		} else {
			out = append(out, line...)
		}
		l.left--
		l.count++
		l.size += len(line)
	}
	if l.deadline != nil {
		l.deadline()
	}
	if len(out) > 0 {
		if _, failed := l.w.Write(out); failed != nil {
			return 0, failed
		}
		if l.flush != nil {
			l.flush()
		}
	}
	return len(p), err
}

// end writes the last line.
func (l *lines) end(end api.LogEnd) {
	if l.deadline != nil {
		l.deadline()
	}
	_ = json.NewEncoder(l.w).Encode(struct { // ignores a client that disconnected
		End api.LogEnd `json:"end"`
	}{end})
}
