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

// PipeKind says what lies behind a pipe.
type PipeKind string

// Kinds of pipes.
const (
	PipeFile PipeKind = "file" // a rotated file that the agent writes
	PipeTCP  PipeKind = "tcp"  // a collector of lines
	PipeOTLP PipeKind = "otlp" // an OpenTelemetry collector
)

// Pipe is a way of the log entries of a proxy to the agent. It has to be there before an Envoy
// hears of the loggers that use it: a FIFO that nobody reads stops the Envoy. What differs in a
// pipe alone makes no difference to the bytes of the config.
type Pipe struct {
	// Path is that of a FIFO of this proxy alone, or of the socket of the agent that takes the records
	// of PipeOTLP.
	Path string
	Kind PipeKind
	// Target is the path of the file, or the host:port of the collector.
	Target   string
	Rotation rotation.Limits // of the file; rotation.Unset is that of the agent
	Prefix   string          // that lines in the FIFO begin with, and not for the collector
	// Backend is the name that the policy or the mesh gives it, "" for none, and Policy is who asks
	// for it.
	Backend string
	Policy  resource.Key
	// Route tells the records of PipeOTLP from those of others, Cluster is the cluster that they go
	// through, and Direct is the form of that cluster that leads to the collector itself.
	Route   string
	Cluster string
	Direct  *Resource
}

// ID tells the pipe from others of its proxy.
func (p *Pipe) ID() string { return cmp.Or(p.Route, p.Path) }

// SamePipes reports whether two lists are the same.
func SamePipes(a, b []Pipe) bool {
	return slices.EqualFunc(a, b, func(a, b Pipe) bool {
		same := a.Direct == b.Direct || a.Direct != nil && b.Direct != nil && a.Direct.Version == b.Direct.Version
		a.Direct, b.Direct = nil, nil
		return same && a == b
	})
}

// orderPipes sorts pipes and keeps the first of those that are the same.
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

// Without returns the config without the loggers that write to some pipes, by their ID: a FIFO is
// not mentioned any more, and the records of PipeOTLP go to their collector directly. The result
// lists the pipes that are left. It is s where no pipe is one of these.
func (s *Sealed) Without(gone func(id string) bool) *Sealed {
	var fifos []string
	var direct []*Resource
	out := *s
	out.Pipes = nil
	for _, p := range s.Pipes {
		switch {
		case !gone(p.ID()):
			out.Pipes = append(out.Pipes, p)
		case p.Kind == PipeOTLP:
			direct = append(direct, p.Direct)
		default:
			fifos = append(fifos, p.Path)
		}
	}
	if len(out.Pipes) == len(s.Pipes) {
		return s
	}
	if len(direct) > 0 {
		list := slices.Clone(s.Resources[RankCluster])
		for i, c := range list {
			if j := slices.IndexFunc(direct, func(d *Resource) bool { return d != nil && d.Name == c.Name }); j >= 0 {
				list[i] = direct[j]
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

// withoutFiles returns a listener without the loggers that write to some files.
func withoutFiles(r *Resource, paths []string) *Resource {
	logger := func(value []byte) ([]byte, bool) {
		file := unpackAs(last(valuesAt(value, fieldLoggerConfig)), fileLogURL)
		return value, file == nil || !slices.Contains(paths, textAt(file, fieldLogPath))
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
