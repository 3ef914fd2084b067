package edgesapi

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/nearside-mesh/nearside/agent/answer/edges"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

// Limits of the history of refused connections.
const (
	window      = time.Hour
	slot        = time.Minute
	maxRefusing = 10_000 // pairs of a dataplane and a destination
	maxRefused  = 200    // in an answer
)

// refusals holds the increases of Envoys' counters of refused connections during the last hour.
type refusals struct {
	mu    sync.Mutex
	by    map[refusing]*increases
	known map[node.Ref]bool // dataplanes that were observed
}

// refusing is a counter: of connections of a dataplane to a destination.
type refusing struct{ mesh, dataplane, reason, to string }

// Reasons for refusals, as counters distinguish them.
const (
	byOutside = "outside" // no destination
	byStatus  = "status"  // to is the cluster
	byInbound = "inbound" // connections to the inbound, of unknown clients; to is its port
)

// increases are the increases of one counter.
type increases struct {
	last  uint64
	slots []increase // the oldest first, at most window/slot
}

type increase struct {
	at    time.Time // of the last increase
	count uint64
}

// observe adds the counters of connected Envoys by mesh and dataplane.
func (r *refusals) observe(counts map[string]map[string]api.ProxyCounts, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.by == nil {
		r.by = map[refusing]*increases{}
	}
	known := map[node.Ref]bool{}
	for mesh, of := range counts {
		for dataplane, c := range of {
			ref := node.Ref{Mesh: mesh, Name: dataplane}
			known[ref] = true
			first := !r.known[ref]
			r.add(refusing{mesh, dataplane, byOutside, ""}, c.Refused, now, first, c.Uptime)
			for name, x := range c.Clusters {
				r.add(refusing{mesh, dataplane, byStatus, name}, x.Refused, now, first, c.Uptime)
			}
			for port, n := range c.Denied {
				r.add(refusing{mesh, dataplane, byInbound, port}, n, now, first, c.Uptime)
			}
		}
	}
	r.known = known
	for k, x := range r.by {
		x.slots = slices.DeleteFunc(x.slots, func(i increase) bool { return now.Sub(i.at) >= window })
		if _, ok := counts[k.mesh][k.dataplane]; !ok && len(x.slots) == 0 {
			delete(r.by, k)
		}
	}
}

// add adds the value of a counter. The first value of a counter counts if its Envoy has started
// within the window, or was observed before.
func (r *refusals) add(k refusing, value uint64, now time.Time, first bool, uptime time.Duration) {
	x := r.by[k]
	if value == 0 && x == nil {
		return
	}
	if x == nil {
		if len(r.by) >= maxRefusing {
			return
		}
		x = &increases{}
		r.by[k] = x
		if first && (uptime == 0 || uptime >= window) {
			x.last = value
			return
		}
	}
	n := value - x.last
	if value < x.last { // another process
		n = value
	}
	x.last = value
	if n == 0 {
		return
	}
	if i := len(x.slots) - 1; i >= 0 && now.Sub(x.slots[i].at) < slot && len(x.slots) >= int(window/slot) {
		x.slots[i] = increase{now, x.slots[i].count + n}
		return
	}
	x.slots = append(x.slots, increase{now, n})
}

// of returns the refused connections of the visible dataplanes of a mesh.
func (r *refusals) of(g *edges.Graph, mesh string, sees edges.Visible, now time.Time) []api.EdgeRefusal {
	r.mu.Lock()
	defer r.mu.Unlock()
	type key struct{ from, to, reason string }
	sums := map[key]*api.EdgeRefusal{}
	for k, x := range r.by {
		if k.mesh != mesh || len(x.slots) == 0 || sees != nil && !sees(k.dataplane) {
			continue
		}
		out := api.EdgeRefusal{Mesh: mesh}
		for _, i := range x.slots {
			if now.Sub(i.at) < window {
				out.Count += i.count
				if at := i.at.UTC().Truncate(time.Second); out.Last == nil || at.After(*out.Last) {
					out.Last = &at
				}
			}
		}
		if out.Count == 0 {
			continue
		}
		own := g.ServiceOf(k.dataplane, k.to)
		switch k.reason {
		case byOutside:
			out.From, out.Reason = own, "no policy permits the destination outside the mesh; "+
				"nearside passthrough suggest lists the destinations"
		case byStatus:
			if out.Destination = g.ServiceOfCluster(k.to); out.Destination == "" {
				continue // outside of the mesh, or removed
			}
			out.From = own
			out.Reason = "the destination has answered with status 403, as its proxy does to clients without permission; " +
				"its workload may send this status too"
		case byInbound:
			out.Destination = own
			out.Reason = "no permission allows the clients, whom the counter does not name"
		}
		id := key{out.From, out.Destination, out.Reason}
		if sum := sums[id]; sum != nil {
			sum.Count += out.Count
			if out.Last.After(*sum.Last) {
				sum.Last = out.Last
			}
			continue
		}
		sums[id] = &out
	}
	list := make([]api.EdgeRefusal, 0, len(sums))
	for _, x := range sums {
		list = append(list, *x)
	}
	return list
}

// mostRecent sorts refusals, and bounds their number.
func mostRecent(list []api.EdgeRefusal) []api.EdgeRefusal {
	slices.SortFunc(list, func(a, b api.EdgeRefusal) int {
		return cmp.Or(b.Last.Compare(*a.Last), cmp.Compare(b.Count, a.Count), cmp.Compare(a.Mesh, b.Mesh),
			cmp.Compare(a.From, b.From), cmp.Compare(a.Destination, b.Destination), cmp.Compare(a.Reason, b.Reason))
	})
	return list[:min(len(list), maxRefused)]
}
