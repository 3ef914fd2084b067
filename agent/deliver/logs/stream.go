package logs

import (
	"cmp"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/accesslog"
)

// Kind says what a stream of lines is.
type Kind string

// Kinds of streams.
const (
	KindFIFO      Kind = "fifo"      // what the Envoy of one proxy writes to one backend
	KindReceiver  Kind = "receiver"  // what a receiver of the config takes from the network
	KindForwarder Kind = "forwarder" // what goes to one collector, from all proxies of the node
	KindFile      Kind = "file"      // what goes to one rotated file, from all proxies and receivers of the node
	KindOTLP      Kind = "otlp"      // what goes to one OpenTelemetry collector
)

// Stream is one way that lines take, with what became of them. Lines of proxies and receivers pass
// two: what they are read from, and the file or collector behind it, which others may share.
type Stream struct {
	// Name is unique among the streams of its kind: the path of a FIFO or file, the name of a
	// receiver, the address of a collector.
	Name string `json:"name"`
	Kind Kind   `json:"kind"`
	// Mesh and Dataplane are whose lines those of a FIFO are, Backend is the name that the policy
	// gives the backend, if any.
	Mesh      string `json:"mesh,omitempty"`
	Dataplane string `json:"dataplane,omitempty"`
	Backend   string `json:"backend,omitempty"`
	// Destination is where the lines go: "file PATH", "tcp HOST:PORT", "otlp HOST:PORT".
	Destination string `json:"destination"`
	// Holder says who besides the agent keeps a FIFO open, so that an Envoy loses nothing while the
	// agent is away; "" for nobody.
	Holder string `json:"holder,omitempty"`
	// Open reports whether some Envoy has a FIFO open for writing.
	Open bool `json:"open,omitempty"`

	accesslog.Stats
}

// DroppedLines returns how many lines of a stream were dropped, for whatever cause.
func (s *Stream) DroppedLines() (n uint64) {
	for _, lines := range s.Dropped {
		n += lines
	}
	return n
}

// sortStreams sorts streams by kind and name.
func sortStreams(list []Stream) {
	slices.SortFunc(list, func(a, b Stream) int {
		return cmp.Or(strings.Compare(string(a.Kind), string(b.Kind)), strings.Compare(a.Name, b.Name))
	})
}
