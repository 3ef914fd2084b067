package logs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/nearside-mesh/nearside/accesslog"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

// Relay receives log records from Envoys and forwards them to OpenTelemetry collectors. Calls of
// SetRoute and RemoveRoute do not overlap.
type Relay interface {
	SetRoute(Route) error
	RemoveRoute(authority string, discard bool) error
	// Recheck makes waiting calls ask Allow again.
	Recheck()
	Stats() map[string]accesslog.Stats
}

// Route forwards records to a collector. It is selected by the :authority of calls.
type Route struct {
	Name, Authority string
	Endpoint        string // host:port for gRPC, or a URL for HTTP
	Spool           string // directory used only by this route; "": none
	// Allow returns an error if a caller may not send now. It does not block.
	Allow func(Caller) error
}

// Caller is a process that sends log records.
type Caller struct {
	Known bool // false: the kernel returned no credentials
	UID   uint32
	Pod   string // uid of the pod that owns the socket; "": the socket of the node
}

// routes manages the routes of log records: one per proxy and collector, identified by authority. A
// route accepts records only from the user of its proxy.
type routes struct {
	o *Options

	mu     sync.Mutex
	routes map[string]*route // by authority
}

// route is one route, guarded by routes.mu.
type route struct {
	target string
	node   string // "": left by an earlier agent, and not requested by a proxy yet
	uid    uint32
	pod    string    // uid of the pod of the proxy; "": none
	until  time.Time // end of its lifetime without a proxy
}

func newRoutes(o *Options) *routes { return &routes{o: o, routes: map[string]*route{}} }

// errNoRelay explains why records go directly to their collector.
var errNoRelay = errors.New("the agent's OTLP socket is not open; see the agent's log")

// set creates or updates the route of a proxy.
func (s *routes) set(id string, uid uint32, pod string, p *draft.Pipe) error {
	if s.o.Relay == nil {
		return errNoRelay
	}
	changed := false
	s.mu.Lock()
	have := s.routes[p.Route]
	if have != nil {
		changed = have.node != id || have.uid != uid || have.pod != pod
		have.node, have.uid, have.pod, have.until = id, uid, pod, time.Now().Add(lingerFor)
	}
	s.mu.Unlock()
	if changed {
		s.o.Relay.Recheck()
	}
	if have != nil { // the authority contains a hash of the target
		return nil
	}
	return s.add(p.Route, &route{target: p.Target, node: id, uid: uid, pod: pod, until: time.Now().Add(lingerFor)})
}

func (s *routes) add(authority string, r *route) error {
	err := s.o.Relay.SetRoute(Route{
		Name: "otlp " + r.target, Authority: authority, Endpoint: r.target, Spool: s.spoolDir(authority, r.target),
		Allow: func(by Caller) error { return s.allow(r, by) },
	})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.routes[authority] = r
	return nil
}

// allow returns an error if a caller may not send records of a route.
func (s *routes) allow(r *route, by Caller) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case r.node == "":
		return errors.New("no proxy has requested this route since the agent started")
	case by.Pod != r.pod:
		return fmt.Errorf("%s sends records over the socket of another pod, or of the node", r.node)
	case r.pod != "":
		return nil // the pod chooses its uids
	case !by.Known:
		return errors.New("the user of the caller is unknown")
	case by.UID != r.uid:
		return fmt.Errorf("%s runs as uid %d, but the caller as uid %d", r.node, r.uid, by.UID)
	}
	return nil
}

// spoolDir returns the spool directory of a route. Its name contains the authority and the target.
func (s *routes) spoolDir(authority, target string) string {
	if s.o.Spool == "" {
		return ""
	}
	return filepath.Join(s.o.Spool, string(draft.PipeOTLP)+"-"+escape(authority)+"-"+escape(target))
}

// openSpools opens the spools of an earlier agent.
func (s *routes) openSpools() {
	if s.o.Spool == "" || s.o.Relay == nil {
		return
	}
	entries, _ := os.ReadDir(s.o.Spool) // errors are reported when a spool is opened
	for _, e := range entries {
		parts := strings.SplitN(e.Name(), "-", 3)
		if len(parts) != 3 || parts[0] != string(draft.PipeOTLP) || !e.IsDir() {
			continue
		}
		authority, ok := unescapeName(parts[1])
		target, is := unescapeName(parts[2])
		if !ok || !is {
			continue
		}
		r := &route{target: target, until: time.Now().Add(s.o.FoundFor)}
		if err := s.add(authority, r); err != nil {
			s.o.Log.Warn("cannot send the spooled records of a collector", "dir", e.Name(), "error", err)
		}
	}
}

// release removes routes that no proxy needs and that have no pending records.
func (s *routes) release(used map[string]bool) {
	if s.o.Relay == nil {
		return
	}
	stats, now := s.o.Relay.Stats(), time.Now()
	var unused []string
	s.mu.Lock()
	for authority, r := range s.routes {
		if st := stats[authority]; used[authority] {
			r.until = now.Add(lingerFor)
		} else if now.After(r.until) && st.InFlight == 0 && st.Spooled == 0 {
			delete(s.routes, authority)
			unused = append(unused, authority)
		}
	}
	s.mu.Unlock()
	for _, authority := range unused {
		if err := s.o.Relay.RemoveRoute(authority, true); err != nil {
			s.o.Log.Error("cannot close a route of log records", "error", err)
		}
	}
}

// streams returns the state of all routes.
func (s *routes) streams() (list []Stream) {
	if s.o.Relay == nil {
		return nil
	}
	stats := s.o.Relay.Stats()
	s.mu.Lock()
	defer s.mu.Unlock()
	for authority, r := range s.routes {
		st := Stream{Name: authority, Kind: KindOTLP, Destination: "otlp " + r.target, Stats: stats[authority]}
		if ref, err := node.ParseRef(r.node); err == nil {
			st.Mesh, st.Dataplane = ref.Mesh, ref.Name
		}
		list = append(list, st)
	}
	return list
}
