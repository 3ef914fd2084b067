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

// Relay takes log records of Envoys and brings them to OpenTelemetry collectors;
// accesslog.OTLPRelay does. Calls of the first two do not overlap.
type Relay interface {
	SetRoute(Route) error
	RemoveRoute(authority string, discard bool) error
	Stats() map[string]accesslog.Stats
}

// Route leads records to a collector, told from others by the :authority of the calls.
type Route struct {
	Name, Authority string
	Endpoint        string // host:port
	Spool           string // directory of its own; "": none
	// Allow says whether a user may send; known is false where the kernel does not say who it is.
	Allow func(known bool, uid uint32) error
}

// routes are the ways of records from proxies to collectors: one for each proxy and collector, told
// by its authority. A route takes records of the user of its proxy alone.
type routes struct {
	o *Options

	mu     sync.Mutex
	routes map[string]*route // by authority
}

// route is one of them. The mu of the routes guards it.
type route struct {
	target string
	node   string // "": an earlier agent has left it, and no proxy has asked for it
	uid    uint32
	until  time.Time // that it stays without a proxy
}

func newRoutes(o *Options) *routes { return &routes{o: o, routes: map[string]*route{}} }

// errNoRelay is why records go to their collector directly.
var errNoRelay = errors.New("the agent's socket for them is not open; the log of the agent says why")

// set makes a route ready for the user of a proxy.
func (s *routes) set(id string, uid uint32, p *draft.Pipe) error {
	if s.o.Relay == nil {
		return errNoRelay
	}
	s.mu.Lock()
	have := s.routes[p.Route]
	if have != nil {
		have.node, have.uid, have.until = id, uid, time.Now().Add(settleFor)
	}
	s.mu.Unlock()
	if have != nil { // the authority is a hash over the target
		return nil
	}
	return s.add(p.Route, &route{target: p.Target, node: id, uid: uid, until: time.Now().Add(settleFor)})
}

func (s *routes) add(authority string, r *route) error {
	err := s.o.Relay.SetRoute(Route{
		Name: "otlp " + r.target, Authority: authority, Endpoint: r.target, Spool: s.spoolDir(authority, r.target),
		Allow: func(known bool, uid uint32) error { return s.allow(r, known, uid) },
	})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.routes[authority] = r
	return nil
}

// allow says whether a caller may send the records of a route.
func (s *routes) allow(r *route, known bool, uid uint32) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case r.node == "":
		return errors.New("no proxy has asked for this route since the agent started")
	case !known:
		return errors.New("the kernel does not say who calls")
	case uid != r.uid:
		return fmt.Errorf("the records of %s come from uid %d, and uid %d calls", r.node, r.uid, uid)
	}
	return nil
}

// spoolDir is the directory of what waits for a collector, which tells both.
func (s *routes) spoolDir(authority, target string) string {
	if s.o.Spool == "" {
		return ""
	}
	return filepath.Join(s.o.Spool, string(draft.PipeOTLP)+"-"+escape(authority)+"-"+escape(target))
}

// openSpools sends on what an earlier agent has left.
func (s *routes) openSpools() {
	if s.o.Spool == "" || s.o.Relay == nil {
		return
	}
	entries, _ := os.ReadDir(s.o.Spool) // what is wrong with it is told by who opens one in it
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
		if err := s.add(authority, &route{target: target, until: time.Now().Add(s.o.Keep)}); err != nil {
			s.o.Log.Warn("what waits for a collector is left", "dir", e.Name(), "error", err)
		}
	}
}

// release removes the routes that no proxy needs and that hold nothing.
func (s *routes) release(used map[string]bool) {
	if s.o.Relay == nil {
		return
	}
	stats, now := s.o.Relay.Stats(), time.Now()
	var unused []string
	s.mu.Lock()
	for authority, r := range s.routes {
		if st := stats[authority]; used[authority] {
			r.until = now.Add(settleFor)
		} else if now.After(r.until) && st.InFlight == 0 && st.Spooled == 0 {
			delete(s.routes, authority)
			unused = append(unused, authority)
		}
	}
	s.mu.Unlock()
	for _, authority := range unused {
		if err := s.o.Relay.RemoveRoute(authority, true); err != nil {
			s.o.Log.Error("a route of log records has not ended well", "error", err)
		}
	}
}

// streams lists the routes.
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
