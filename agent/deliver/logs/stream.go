package logs

import (
	"cmp"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/accesslog"
)

// Kind is the kind of a stream.
type Kind string

// Kinds of streams.
const (
	KindFIFO      Kind = "fifo"      // lines of one proxy for one backend
	KindReceiver  Kind = "receiver"  // lines received from the network
	KindForwarder Kind = "forwarder" // lines for one collector, from all proxies of the node
	KindFile      Kind = "file"      // lines for one rotated file, from all proxies and receivers of the node
	KindOTLP      Kind = "otlp"      // records for one OpenTelemetry collector
)

// Stream is the state of a stream of lines. Lines of proxies and receivers pass through two
// streams: their source, and the file or collector, which may be shared.
type Stream struct {
	// Name is unique within a kind: the path of a FIFO or file, the name of a receiver, or the address
	// of a collector.
	Name string `json:"name"`
	Kind Kind   `json:"kind"`
	// Mesh and Dataplane identify the proxy of a FIFO. Backend is the name of the backend in the
	// policy, if any.
	Mesh      string `json:"mesh,omitempty"`
	Dataplane string `json:"dataplane,omitempty"`
	Backend   string `json:"backend,omitempty"`
	// Destination is "file PATH", "tcp HOST:PORT", or "otlp HOST:PORT".
	Destination string `json:"destination"`
	// Holder is the process that keeps a FIFO open while the agent is down, so that no lines are lost;
	// "" for none.
	Holder string `json:"holder,omitempty"`
	// Open reports whether an Envoy has a FIFO open for writing.
	Open bool `json:"open,omitempty"`
	// Refused counts the connections that a receiver refused at its limit.
	Refused uint64 `json:"refused,omitempty"`

	accesslog.Stats
}

// Merge returns streams sorted by kind and name, each once.
func Merge(list []Stream) []Stream {
	sortStreams(list)
	return slices.CompactFunc(list, func(a, b Stream) bool { return a.Kind == b.Kind && a.Name == b.Name })
}

// sortStreams sorts streams by kind and name.
func sortStreams(list []Stream) {
	slices.SortStableFunc(list, func(a, b Stream) int {
		return cmp.Or(strings.Compare(string(a.Kind), string(b.Kind)), strings.Compare(a.Name, b.Name))
	})
}
