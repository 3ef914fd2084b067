package accesslog

import (
	"crypto/sha256"
	"encoding/hex"
	"path"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/policy"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// Destination is a FIFO that the Envoy of a proxy writes lines to, and the collector that they are for.
type Destination struct {
	Path    string // absolute where the run directory is
	Address string // host:port of the collector
	// Prefix stands before every line in the FIFO and is not for the collector: the lines of TrafficLog have it as the
	// reference writes them. "" for none.
	Prefix string
}

// Destinations lists the FIFOs that a proxy may write to by the plugin's policies, sorted by path. The agent makes them
// before the proxy is told to open them. It needs View, Proxy, Dataplane, Rules and RunDir of the context; what is wrong
// with a policy is not reported here, since applying it does.
func Destinations(c *policy.Context) []Destination {
	r := resolver{c: c}
	var all []sink
	r.eachRule(func(rule *policy.Rule, list string) { all = append(all, r.sinks(rule, list)...) })
	return destinations(c, all)
}

// LoggingDestinations is [Destinations] for what [LogServices] writes to backends of Mesh.logging.
func LoggingDestinations(c *policy.Context, backends []resource.LoggingBackend) []Destination {
	var all []sink
	for i := range backends {
		all = append(all, legacySink(&backends[i]))
	}
	return destinations(c, all)
}

func destinations(c *policy.Context, sinks []sink) []Destination {
	var out []Destination
	for _, s := range sinks {
		if s.kind == sinkTCP {
			out = append(out, Destination{Path: fifo(c, s), Address: s.addr, Prefix: s.prefix})
		}
	}
	slices.SortFunc(out, func(a, b Destination) int { return strings.Compare(a.Path, b.Path) })
	return slices.Compact(out)
}

// IsFIFO reports whether a path is that of a FIFO of some proxy.
func IsFIFO(s string) bool {
	return strings.HasPrefix(path.Base(s), fifoHead) && strings.HasSuffix(s, fifoTail)
}

// eachRule calls f for every rule of the proxy, in the order from, to, real resources. list is the list that the items
// of the rule stand in.
func (r *resolver) eachRule(f func(rule *policy.Rule, list string)) {
	k := r.c.Rules.Kind(Kind)
	if k == nil {
		return
	}
	for i := range k.From {
		for _, rule := range k.From[i].Rules {
			f(rule, "from")
		}
		for j := range k.From[i].Routes {
			for _, rule := range k.From[i].Routes[j].Rules {
				f(rule, "from")
			}
		}
	}
	for _, rule := range k.To {
		f(rule, "to")
	}
	for _, rule := range k.ToResources {
		f(&rule.Rule, "to")
	}
}

// Bounds of the path of a FIFO: a name may have 255 bytes, and tools that list sockets and FIFOs alike know no path
// that sun_path (108 bytes with its end, unix(7)) could not hold.
const (
	maxFIFOPath = 107
	minFIFOName = len(fifoHead) + 2*fifoHash + len(fifoTail)
	fifoHash    = 8 // bytes
	fifoHead    = "nearside-"
	fifoTail    = ".fifo"
)

// fifo is the path of the FIFO for the lines of a proxy to a collector. The name is the same on every start and for
// every part of a config. It begins with the mesh and the proxy as far as they fit; a hash keeps it unique.
func fifo(c *policy.Context, s sink) string {
	return path.Join(c.RunDir, "access", fifoName(maxFIFOPath-len(path.Join(c.RunDir, "access"))-1, c.Proxy.Key, s))
}

func fifoName(room int, proxy resource.Key, s sink) string {
	sum := sha256.Sum256([]byte(strings.Join([]string{proxy.Mesh, proxy.Name, s.addr, s.prefix}, "\x00")))
	hash := hex.EncodeToString(sum[:fifoHash])
	name := proxy.Mesh + "." + proxy.Name
	room -= minFIFOName + 1 // with the hyphen before the hash
	switch {
	case room <= 0:
		return fifoHead + hash + fifoTail
	case len(name) > room:
		name = name[:room]
	}
	return fifoHead + name + "-" + hash + fifoTail
}
