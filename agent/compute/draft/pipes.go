package draft

import (
	"cmp"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/nearside-mesh/nearside/agent/compute/envoy"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/rotation"
)

// PipeKind is the kind of the destination of a pipe.
type PipeKind string

// Kinds of pipes.
const (
	PipeFile PipeKind = "file" // a rotated file that the agent writes
	PipeTCP  PipeKind = "tcp"  // a TCP collector of lines
	PipeOTLP PipeKind = "otlp" // an OpenTelemetry collector
)

// Pipe transports log entries of a proxy to the agent. It must exist before an Envoy receives the
// loggers that use it, because Envoy blocks on a FIFO without a reader. A change that affects only
// pipes does not change the bytes of the config.
type Pipe struct {
	// Path is the path of a FIFO that only this proxy uses, or of the agent's socket for PipeOTLP.
	Path string
	Kind PipeKind
	// Target is the path of the file, the host:port of the collector, or the URL of a collector of
	// PipeOTLP by HTTP.
	Target   string
	Rotation rotation.Limits // of the file; rotation.Unset uses the limits of the agent
	// Fallback is true for a file that the Envoy may write itself, without rotation, if it cannot open
	// the FIFO.
	Fallback bool
	Prefix   string // prefix of the lines in the FIFO, which the collector does not receive
	// Backend is the name of the backend in the policy or mesh, "" for none. Policy is the policy
	// that created the pipe.
	Backend string
	Policy  resource.Key
	// Route identifies the records of PipeOTLP. Cluster is the cluster through which they are sent.
	// Direct is the form of this cluster that leads directly to the collector; nil if only the agent
	// can reach it.
	Route   string
	Cluster string
	Direct  *Resource
}

// ID identifies the pipe among those of its proxy.
func (p *Pipe) ID() string { return cmp.Or(p.Route, p.Path) }

// SamePipes reports whether two lists are equal.
func SamePipes(a, b []Pipe) bool {
	return slices.EqualFunc(a, b, func(a, b Pipe) bool {
		same := a.Direct == b.Direct || a.Direct != nil && b.Direct != nil && a.Direct.Version == b.Direct.Version
		a.Direct, b.Direct = nil, nil
		return same && a == b
	})
}

// orderPipes sorts pipes and removes duplicates.
func orderPipes(list []Pipe) []Pipe {
	slices.SortStableFunc(list, func(a, b Pipe) int { return strings.Compare(a.ID(), b.ID()) })
	return slices.CompactFunc(list, func(a, b Pipe) bool { return a.ID() == b.ID() })
}

// Pipes returns the pipes of a config, and those of another config to which a logger of the given
// listeners writes as well.
func Pipes(own, other []Pipe, listeners []*Resource) []Pipe {
	var missing []Pipe
	for _, p := range other {
		if !slices.ContainsFunc(own, func(o Pipe) bool { return o.ID() == p.ID() }) {
			missing = append(missing, p)
		}
	}
	if len(missing) == 0 {
		return own
	}
	used := envoy.LogTargets(listeners)
	missing = slices.DeleteFunc(missing, func(p Pipe) bool { return !used[p.ID()] })
	if len(missing) == 0 {
		return own
	}
	return orderPipes(slices.Concat(own, missing))
}

// Without returns the config without the pipes for which gone returns true. Loggers that write to a
// FIFO are removed, or write to its file if direct returns true. The records of PipeOTLP are sent
// directly to their collector. The result has the remaining pipes. It is s itself if none is gone.
func (s *Sealed) Without(gone, direct func(id string) bool) *Sealed {
	fifos := map[string]string{} // to the file that replaces it, "" for none
	var clusters []*Resource
	out := *s
	out.Pipes = nil
	for _, p := range s.Pipes {
		switch {
		case !gone(p.ID()):
			out.Pipes = append(out.Pipes, p)
		case p.Kind == PipeOTLP:
			clusters = append(clusters, p.Direct)
		default:
			if fifos[p.Path] = ""; p.Kind == PipeFile && p.Fallback && direct(p.ID()) {
				fifos[p.Path] = p.Target
			}
		}
	}
	if len(out.Pipes) == len(s.Pipes) {
		return s
	}
	if len(clusters) > 0 {
		list := slices.Clone(s.Resources[RankCluster])
		for i, c := range list {
			if j := slices.IndexFunc(clusters, func(d *Resource) bool { return d != nil && d.Name == c.Name }); j >= 0 {
				list[i] = clusters[j]
			}
		}
		out.Resources[RankCluster], out.Versions[RankCluster] = Order(list)
	}
	if len(fifos) > 0 {
		list := slices.Clone(s.Resources[RankListener])
		for i, l := range list {
			list[i] = withoutFiles(l, fifos)
		}
		out.Resources[RankListener], out.Versions[RankListener] = Order(list)
	}
	return &out
}

// withoutFiles returns a listener whose loggers write to other files, or without those for which
// the other file is "".
func withoutFiles(r *Resource, files map[string]string) *Resource {
	logger := func(value []byte) ([]byte, bool) {
		file := unpackAs(last(valuesAt(value, fieldLoggerConfig)), fileLogURL)
		other, known := files[textAt(file, fieldLogPath)]
		if file == nil || !known || other == "" {
			return value, file == nil || !known
		}
		path := fieldEdits{fieldLogPath: func([]byte) ([]byte, bool) { return []byte(other), true }}
		return fieldEdits{fieldLoggerConfig: fieldEdits{fieldAnyValue: path.inside}.inside}.inside(value)
	}
	config := func(packed []byte) ([]byte, bool) {
		number, known := map[string]protowire.Number{hcmURL: fieldManagerLogs,
			tcpURL: fieldTCPLogs}[textAt(packed, fieldAnyURL)]
		if !known {
			return packed, true
		}
		return fieldEdits{fieldAnyValue: fieldEdits{number: logger}.inside}.inside(packed)
	}
	chain := fieldEdits{fieldChainFilters: fieldEdits{fieldFilterConfig: config}.inside}.inside
	edits := fieldEdits{fieldListenerLogs: logger, fieldListenerChains: chain, fieldListenerDefault: chain}
	return edited(r, edits.apply(r.Body()))
}
