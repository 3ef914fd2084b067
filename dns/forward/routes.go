package forward

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/nearside-mesh/nearside/dns/table"
)

// Protocol is how servers are queried.
type Protocol string

// Protocols of routes. UDP includes TCP for answers that do not fit.
const (
	UDP Protocol = "udp"
	TCP Protocol = "tcp"
	TLS Protocol = "tls" // RFC 7858
)

const (
	maxRoutes   = 64
	maxDomains  = 64 // of a route
	tlsSessions = 8  // of a server that are remembered for resumption
)

// Route sends questions for names in some domains to other servers.
type Route struct {
	Domains  []string // "." stands for all names; the longest domain of a name decides
	Servers  []netip.AddrPort
	Protocol Protocol // "" means UDP
	// ServerName is the name in the certificate of TLS servers; "" means that the certificate is
	// for the address of the server.
	ServerName string
}

// routes has the servers for domains. It is immutable.
type routes struct {
	byDomain map[string]*serverSet // by domain in lower-case wire form
	sets     []*serverSet          // in the order of the config
}

// find returns the servers for a name in wire form, or nil if it is in no domain.
func (r *routes) find(name []byte) *serverSet {
	if len(r.byDomain) == 0 {
		return nil
	}
	for at := 0; ; at += 1 + int(name[at]) {
		if set := r.byDomain[string(name[at:])]; set != nil || name[at] == 0 {
			return set
		}
	}
}

// validate returns an error for an invalid route.
func (r *Route) validate(own func(netip.AddrPort) bool) error {
	var errs []error
	if n := len(r.Domains); n == 0 || n > maxDomains {
		errs = append(errs, fmt.Errorf("domains: has %d entries; 1 to %d are allowed", n, maxDomains))
	}
	if len(r.Servers) == 0 {
		errs = append(errs, errors.New("servers: has no entry; add the address of a server"))
	}
	errs = append(errs, validateServers(r.Servers, own))
	switch r.Protocol {
	case "", UDP, TCP, TLS:
	default:
		errs = append(errs, fmt.Errorf("protocol: %q is not known; use udp, tcp, or tls", r.Protocol))
	}
	if r.ServerName != "" && r.Protocol != TLS {
		errs = append(errs, fmt.Errorf("serverName: %q has no effect without TLS; set the protocol to tls", r.ServerName))
	}
	return errors.Join(errs...)
}

// Configure sets the routes, and whether the AD bit of their servers and of Options.Servers is
// forwarded. Servers of unchanged routes keep their state. Answers in the cache are dropped if
// other servers may answer differently, and questions in flight move to the new servers. If it
// returns an error, nothing has changed.
func (f *Forwarder) Configure(list []Route, trustAD bool) error {
	if len(list) > maxRoutes {
		return fmt.Errorf("has %d routes; at most %d are allowed", len(list), maxRoutes)
	}
	next := &routes{byDomain: map[string]*serverSet{}}
	for i := range list {
		r := &list[i]
		if err := r.validate(f.Opts.Own); err != nil {
			return fmt.Errorf("route %d: %w", i, err)
		}
		set := f.newSet(r, trustAD)
		next.sets = append(next.sets, set)
		for _, d := range r.Domains {
			wire, err := table.AppendName(nil, d)
			if d == "." {
				wire, err = []byte{0}, nil
			}
			if err != nil {
				return fmt.Errorf("route %d: domain %q: %w", i, table.Clip(d), err)
			}
			if next.byDomain[string(wire)] != nil {
				return fmt.Errorf("route %d: domain %q is listed twice; list it once", i, table.Clip(d))
			}
			next.byDomain[string(wire)] = set
		}
	}
	f.replace(next, trustAD)
	return nil
}

// newSet returns the servers of a route.
func (f *Forwarder) newSet(r *Route, trusted bool) *serverSet {
	set := &serverSet{domains: slices.Clone(r.Domains), protocol: r.Protocol, serverName: r.ServerName,
		tcp: r.Protocol == TCP || r.Protocol == TLS, trusted: trusted}
	if set.protocol == "" {
		set.protocol = UDP
	}
	for _, a := range r.Servers {
		sv := &server{addr: a}
		if r.Protocol == TLS {
			name := r.ServerName
			if name == "" {
				name = a.Addr().WithZone("").String()
			}
			sv.tls = &tls.Config{ServerName: name, MinVersion: tls.VersionTLS12, RootCAs: f.Opts.RootCAs,
				ClientSessionCache: tls.NewLRUClientSessionCache(tlsSessions)}
		}
		set.servers = append(set.servers, sv)
	}
	return set
}

// replace sets the routes.
func (f *Forwarder) replace(next *routes, trustAD bool) {
	now := f.clock()
	f.mu.Lock()
	defer f.mu.Unlock()
	before := f.routes
	trustChanged := len(f.Opts.Servers) > 0 && f.set.trusted != trustAD
	unchanged := len(before.sets) == len(next.sets) && !trustChanged
	for i, set := range next.sets {
		j := slices.IndexFunc(before.sets, set.sameRoute)
		if j < 0 {
			unchanged = false
			continue
		}
		unchanged = unchanged && i == j && before.sets[j].trusted == set.trusted
		set.adopt(before.sets[j].servers)
		unchanged = unchanged && slices.Equal(before.sets[j].servers, set.servers)
	}
	if unchanged {
		return
	}
	gone := slices.Collect(f.servers)
	f.routes = next
	if trustChanged {
		set := *f.set
		set.trusted = trustAD
		f.set = &set
	}
	f.cache.drop()
	f.cache.era.Add(1)
	current := slices.Collect(f.servers)
	for _, sv := range gone {
		if !slices.Contains(current, sv) {
			f.dismiss(sv)
		}
	}
	f.eachAsked(func(s *slot) { f.reroute(s, now) })
}

// sameRoute reports whether two sets are of the same route, with the same or other servers.
func (set *serverSet) sameRoute(o *serverSet) bool {
	return set.protocol == o.protocol && set.serverName == o.serverName && slices.Equal(set.domains, o.domains)
}

// adopt replaces servers by known ones with the same address, which have a state.
func (set *serverSet) adopt(known []*server) {
	for i, sv := range set.servers {
		if j := slices.IndexFunc(known, func(o *server) bool { return o.addr == sv.addr }); j >= 0 {
			set.servers[i] = known[j]
		}
	}
}

// reroute ends the tries of a question at servers that are no longer responsible for its name, and
// moves it to those that are.
func (f *Forwarder) reroute(s *slot, now int64) {
	set := f.responsible(s)
	for i := range s.tries {
		if ch := s.tries[i].ch; ch != nil && !slices.Contains(set.servers, ch.server) {
			f.end(&s.tries[i])
		}
	}
	s.tcp = false
	f.move(s, now)
}

// responsible returns the servers for a question: the one that the client queried, those of the
// longest domain, or the others of the config.
func (f *Forwarder) responsible(s *slot) *serverSet {
	if s.origin != nil {
		return s.origin.set
	}
	if set := f.routes.find(s.name[:s.len]); set != nil {
		return set
	}
	return f.set
}

// servers yields all servers: those for names without a route, of routes, and of origins. The
// caller holds the lock.
func (f *Forwarder) servers(yield func(*server) bool) {
	for _, sv := range f.set.servers {
		if !yield(sv) {
			return
		}
	}
	for _, set := range f.routes.sets {
		for _, sv := range set.servers {
			if !yield(sv) {
				return
			}
		}
	}
	for _, o := range f.networks {
		o.mu.Lock()
		for _, x := range o.byAddr {
			if !yield(x.set.servers[0]) {
				o.mu.Unlock()
				return
			}
		}
		o.mu.Unlock()
	}
}

// eachAsked calls a function for each question in flight. The caller holds the lock, which the
// function must not release.
func (f *Forwarder) eachAsked(do func(*slot)) {
	for c := range f.slots.chunks {
		for i := range f.slots.chunks[c] {
			if s := &f.slots.chunks[c][i]; s.asking {
				do(s)
			}
		}
	}
}
