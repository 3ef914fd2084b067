package ads

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/status"

	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

// Metric labels of refused streams and connections.
const (
	reasonDenied       = "denied" // the peer may not use the node id
	reasonUnauthorized = "unauthenticated"
	reasonBadNodeID    = "bad-node-id"
	reasonBadRequest   = "bad-request"
	reasonMetadata     = "refused" // the handler refuses the node metadata
	reasonUnknown      = "unknown" // the node id matches no resource
	reasonMemory       = "memory"
	reasonConnections  = "too-many-connections"
)

// closedReasons are all values of the label, which are exported from the start.
var closedReasons = [...]string{reasonDenied, reasonUnauthorized, reasonBadNodeID, reasonBadRequest, reasonMetadata,
	reasonUnknown, reasonMemory, reasonConnections,
	"too-many", "too-many-of-peer", "too-many-bytes", "too-slow", "superseded",
	"stuck", "silent", "internal"}

// isListed reports whether [Server.Refused] lists clients that are refused for a reason. The other
// reasons end streams of clients that may return at once.
func isListed(reason string) bool {
	switch reason {
	case reasonDenied, reasonUnauthorized, reasonBadNodeID, reasonBadRequest, reasonMetadata, reasonUnknown, reasonMemory,
		reasonConnections, "too-many", "too-many-of-peer":
		return true
	}
	return false
}

// outlivesOpen reports whether a client that is refused for a reason may open streams. It is
// accepted only when it has a config.
func outlivesOpen(reason string) bool { return reason == reasonUnknown || reason == reasonMemory }

const (
	// refusedFor is how long a client is listed after its last refused stream. Envoy and gRPC
	// libraries try again within two minutes.
	refusedFor = 3 * time.Minute
	// maxRefused limits the listed clients, and maxRefusedOf those of one user or address. Then the
	// client whose last attempt is the oldest leaves the list.
	maxRefused   = 128
	maxRefusedOf = 16
	// maxRefusedText limits the bytes of a listed reason.
	maxRefusedText = 1024
)

// refusedKey identifies a refused client: a node id and a user or address.
type refusedKey struct{ id, owner string }

// refusedClient is a refused client.
type refusedClient struct {
	api.RefusedStream // without User
	node              node.Key
}

// refusals lists the clients that are refused now. It is safe for concurrent use.
type refusals struct {
	mu      sync.Mutex
	total   api.Refusals // without the list
	clients map[refusedKey]*refusedClient
	left    uint64 // number of clients that left the list because of its limits
}

// record adds a refused stream. It reports whether the refusal is to be logged: the first one of
// each second.
func (l *refusals) record(p access.Peer, n node.Key, reason string, err error, now time.Time) (log bool, total uint64) {
	why := clip.PrintableText(status.Convert(err).Message(), maxRefusedText)
	n.ID = clip.PrintableText(n.ID, node.MaxNodeID)
	l.mu.Lock()
	defer l.mu.Unlock()
	if !outlivesOpen(reason) {
		log = now.Sub(l.total.At) >= time.Second
		l.total = api.Refusals{Total: l.total.Total + 1, At: now, Peer: p.String(), NodeID: n.ID, Reason: why}
	}
	k := refusedKey{n.ID, p.Owner()}
	c := l.clients[k]
	if c == nil {
		l.makeRoom(k.owner, now)
		c = &refusedClient{}
		c.Since = now
		if l.clients == nil {
			l.clients = map[refusedKey]*refusedClient{}
		}
		l.clients[k] = c
	}
	c.node, c.NodeID, c.Peer, c.Cause, c.Reason, c.Last = n, n.ID, p, reason, why, now
	c.Count++
	return log, l.total.Total
}

// makeRoom removes a client if an owner has too many, or all have. The caller holds mu.
func (l *refusals) makeRoom(owner string, now time.Time) {
	l.expire(now)
	var oldest, oldestOf refusedKey
	of := 0
	for k, c := range l.clients {
		if o := l.clients[oldest]; o == nil || c.Last.Before(o.Last) {
			oldest = k
		}
		if k.owner == owner {
			of++
			if o := l.clients[oldestOf]; o == nil || c.Last.Before(o.Last) {
				oldestOf = k
			}
		}
	}
	switch {
	case of >= maxRefusedOf:
		delete(l.clients, oldestOf)
		l.left++
	case len(l.clients) >= maxRefused:
		delete(l.clients, oldest)
		l.left++
	}
}

// expire removes clients that have not tried again. The caller holds mu.
func (l *refusals) expire(now time.Time) {
	for k, c := range l.clients {
		if now.Sub(c.Last) >= refusedFor {
			delete(l.clients, k)
		}
	}
}

// opened removes the entries of a client that has opened a stream. A client that was refused before
// its first request, or that has another node id now, is recognized by its process. Entries of
// other users with the same node id leave the list if their processes have ended.
func (l *refusals) opened(p access.Peer, id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	owner := p.Owner()
	for k, c := range l.clients {
		switch same := k.owner == owner; {
		case k.id == id && !outlivesOpen(c.Cause) && (same || c.Peer.HasEnded()),
			k.id != id && same && p.PID > 0 && p.PID == c.Peer.PID:
			delete(l.clients, k)
		}
	}
}

// list returns the refused clients, the latest refusal first.
func (l *refusals) list(now time.Time, hasConfig func(node.Key) bool) api.Refusals {
	l.mu.Lock()
	l.expire(now)
	out := l.total
	out.Streams = make([]api.RefusedStream, 0, len(l.clients))
	awaiting := map[refusedKey]node.Key{}
	for k, c := range l.clients {
		out.Streams = append(out.Streams, c.RefusedStream)
		if outlivesOpen(c.Cause) {
			awaiting[k] = c.node
		}
	}
	out.Left = l.left
	l.mu.Unlock()
	for k, n := range awaiting {
		if !hasConfig(n) {
			delete(awaiting, k)
		}
	}
	if len(awaiting) > 0 { // they have a config since
		l.mu.Lock()
		for k := range awaiting {
			if c := l.clients[k]; c != nil && outlivesOpen(c.Cause) {
				delete(l.clients, k)
			}
		}
		l.mu.Unlock()
		out.Streams = slices.DeleteFunc(out.Streams, func(s api.RefusedStream) bool {
			_, served := awaiting[refusedKey{s.NodeID, s.Peer.Owner()}]
			return served && outlivesOpen(s.Cause)
		})
	}
	slices.SortFunc(out.Streams, func(a, b api.RefusedStream) int {
		return cmp.Or(b.Last.Compare(a.Last), cmp.Compare(a.NodeID, b.NodeID), cmp.Compare(a.Peer.Owner(), b.Peer.Owner()))
	})
	users := map[string]string{}
	for i := range out.Streams {
		s := &out.Streams[i]
		who := s.Peer.String()
		if s.Peer.IsUser() || s.Peer.Pod != nil {
			if who = users[s.Peer.Owner()]; who == "" {
				bare := s.Peer
				bare.Token, bare.Names = nil, nil
				who = bare.Account() // reads the user database
				users[s.Peer.Owner()] = who
			}
		}
		s.User = who
	}
	return out
}

// Refused returns the number of refused streams, and the clients that are refused now. A client
// leaves the list when it is accepted, and 3 minutes after its last refused stream.
func (s *Server) Refused() api.Refusals { return s.refusals.list(s.opts.Now(), s.proxies.HasConfig) }

// refuse counts and lists a refused stream under a reason.
func (s *Server) refuse(p access.Peer, n node.Key, reason string, err error) {
	s.metrics.closed.WithLabelValues(reason).Inc()
	log, total := s.refusals.record(p, n, reason, err, s.opts.Now())
	if log {
		s.opts.Log.Warn("xDS stream is refused", "node", n.ID, "peer", p.String(), "reason", status.Convert(err).Message(),
			"total", total)
	}
}

var refusedClientsDesc = prometheus.NewDesc("nearside_xds_refused_clients",
	"Clients whose xDS streams are refused now, by the reason of the latest refusal.", []string{"reason"}, nil)

// refusedClients collects the number of refused clients.
type refusedClients struct{ s *Server }

// Describe implements [prometheus.Collector].
func (refusedClients) Describe(ch chan<- *prometheus.Desc) { ch <- refusedClientsDesc }

// Collect implements [prometheus.Collector].
func (c refusedClients) Collect(ch chan<- prometheus.Metric) {
	counts := map[string]int{reasonDenied: 0, reasonUnauthorized: 0, reasonUnknown: 0}
	for _, x := range c.s.Refused().Streams {
		counts[x.Cause]++
	}
	for reason, n := range counts {
		ch <- prometheus.MustNewConstMetric(refusedClientsDesc, prometheus.GaugeValue, float64(n), reason)
	}
}
