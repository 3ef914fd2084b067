package access

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// ProxyRule is an item of xds.access. It lists the proxies that the peers it matches may act as.
type ProxyRule struct {
	Matcher
	Pod         string   `json:"pod,omitempty" max:"512" doc:"Pods that connect over their own sockets (xds.pods), NAMESPACE/NAME; * matches any characters. Only nodes may be set beside it."`
	Certificate string   `json:"certificate,omitempty" max:"512" doc:"DNS or URI name in the client certificate; * matches any characters."`
	Nodes       []string `json:"nodes,omitempty" max:"256" doc:"Node ids that the peer may take, MESH.NAME; * matches any characters. Empty: none."`
	Bring       bool     `json:"bring,omitempty" doc:"Allows the peer to send its Dataplane in the node metadata."`
	Services    []string `json:"services,omitempty" max:"256" doc:"Values of kuma.io/service that a Dataplane in the metadata may claim; * matches any characters. Empty: none."`
	Tags        []string `json:"tags,omitempty" max:"256" doc:"Other tags and labels that such a Dataplane may have, KEY=VALUE; * matches any characters. Empty: only kuma.io/protocol."`
}

// Grant holds the permissions of a peer as one proxy.
type Grant struct {
	Rule     string   // source of the grant, for people: "xds.access[2]"
	Bring    bool     // it may send its Dataplane in the node metadata
	Services []string // patterns of the kuma.io/service values allowed in such a Dataplane
	Tags     []string // patterns of other tags and labels allowed in it, KEY=VALUE
	StoredBy bool     // only proxies whose Dataplane came from a file or the API
	Pinned   bool     // only proxies whose Dataplane is pinned to the peer

	unmet func(Pins) string // why the peer lacks pinned properties, or ""; nil: it needs none
}

// tagProtocol sets the protocol of a service. It is not an identity, and no selector uses it.
const tagProtocol = "kuma.io/protocol"

// Claim reports whether the node metadata may contain a Dataplane with these services, and with
// these other tags and labels in the form KEY=VALUE. A proxy's certificate contains its tags, and
// MeshServices and policies select by tags and labels, so an unrestricted tag would allow
// impersonation. A Dataplane that is pinned to another peer is refused. The error names the label
// or the config key to set.
func (g *Grant) Claim(services, tags []string) error {
	if !g.Bring {
		return fmt.Errorf("%s grants the node id without a Dataplane in the node metadata; "+
			"apply the Dataplane from a file or over the API, or set bring and services in xds.access", g.Rule)
	}
	if g.unmet != nil {
		if why := g.unmet(pinsOf(tags)); why != "" {
			return errors.New(why)
		}
	}
	for _, s := range services {
		if !anyGlob(g.Services, s) {
			return fmt.Errorf("the Dataplane in the node metadata claims %s=%q, which %s does not grant; "+
				"add it to services there", resource.TagService, clip.Value(s), g.Rule)
		}
	}
	for _, t := range tags {
		if key, value, _ := strings.Cut(t, "="); key != tagProtocol && !isPin(key) && !anyGlob(g.Tags, t) {
			return fmt.Errorf("the Dataplane in the node metadata has the tag or label %s=%q, which %s does not grant; "+
				"add %q to tags there", clip.Value(key), clip.Value(value), g.Rule, clip.Value(t))
		}
	}
	return nil
}

// Target is the proxy that a peer asks to act as.
type Target struct {
	ID string // node id
	// Brought is set if the store has its Dataplane from the metadata of an Envoy.
	Brought bool
	// Stored is set if the store has its Dataplane.
	Stored bool
	// Pins are those of its Dataplane.
	Pins Pins
}

// DeniedError is the error for a peer that may not act as a proxy.
type DeniedError struct {
	Peer   Peer
	ID     string
	Reason string
}

// Error names the peer, the node id, and the key to set.
func (e *DeniedError) Error() string {
	return fmt.Sprintf("%s may not use the node id %q: %s", e.Peer, e.ID, e.Reason)
}

// ProxyOptions configures [NewProxies].
type ProxyOptions struct {
	Rules    []ProxyRule // nil selects the default, see [Proxies.Decide]
	AgentUID uint32
	GID      int  // of the xDS socket; negative if it has none
	Insecure bool // peers on TCP need neither token nor certificate
	// Unpinned lets members of the socket's group act as proxies of Dataplanes without pins.
	Unpinned bool
}

// Proxies decides which peer may act as which proxy. It is safe for concurrent use.
type Proxies struct {
	o     ProxyOptions
	rules []proxyRule
	users users
}

type proxyRule struct {
	who  matcher
	rule ProxyRule
}

// NewProxies resolves the users and groups of the rules. It fails if a rule names no peer; the
// error lists all such rules.
func NewProxies(o ProxyOptions) (*Proxies, error) {
	p := &Proxies{o: o}
	var errs []error
	for i, r := range o.Rules {
		m := matcher{group: -1}
		if why := r.CheckPod(); why != "" {
			errs = append(errs, fmt.Errorf("xds.access[%d]: %s", i, why))
		} else if r.Pod == "" && (r.Certificate == "" || r.Matcher != (Matcher{})) {
			var err error
			if m, err = r.Matcher.resolve(); err != nil {
				errs = append(errs, fmt.Errorf("xds.access[%d]: %w", i, err))
			}
		}
		p.rules = append(p.rules, proxyRule{m, r})
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return p, nil
}

// Missing lists the rules that match no peer because their user or group does not exist.
func (p *Proxies) Missing() (out []string) {
	for i, r := range p.rules {
		if r.who.missing != "" {
			out = append(out, fmt.Sprintf("xds.access[%d]: %s", i, r.who.missing))
		}
	}
	return out
}

// maxRangeUsers limits the user ids that [Proxies.Users] takes from ranges.
const maxRangeUsers = 256

// Users returns the sorted ids of the users in rules, given by user or by small ranges of ids.
func (p *Proxies) Users() []uint32 {
	var out []uint32
	left := uint64(maxRangeUsers)
	for _, r := range p.rules {
		if r.who.missing != "" {
			continue
		}
		if r.who.keys.User != "" {
			out = append(out, r.who.user)
		}
		if u := r.who.uids; u != nil && uint64(u.to)-uint64(u.from) < left {
			left -= uint64(u.to) - uint64(u.from) + 1
			for id := uint64(u.from); id <= uint64(u.to); id++ {
				out = append(out, uint32(id))
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Decide returns the permissions of the peer as a proxy, or a [DeniedError].
//
// With rules, the first rule that matches the peer decides; without a match the peer is denied.
// Without rules, root and the agent's user may act as every proxy and send any Dataplane. A peer
// with a token may act as the proxies and send the services that the token names. A peer with a
// certificate may use the node ids that it names. Members of the socket's group may act as the
// proxies whose Dataplanes came from files or the API and are pinned to them; with Unpinned, they
// need no pin. With Insecure, all TCP peers may act as proxies without pins. A proxy without a
// stored Dataplane, which gets no config, may wait for one.
//
// A peer on the socket of a pod may act only as the proxy of the stored Dataplane NAME.NAMESPACE of
// this pod. Only rules with the key pod apply to it.
//
// In all cases, only root and the peers that have all of its [Pins] may use a Dataplane, and a
// token grants only the proxies and services in it.
func (p *Proxies) Decide(peer *Peer, t Target) (Grant, error) {
	g, why := p.decide(peer, t)
	if why == "" && !peer.Root() {
		why = p.unmet(t.Pins, peer)
	}
	switch {
	case why != "":
	case g.StoredBy && t.Brought:
		why = "its Dataplane was sent by the Envoy of another user; apply it from a file or over the API, " +
			"or grant this peer the node id in xds.access"
	case g.Pinned && t.Stored && t.Pins == Pins{}:
		why = fmt.Sprintf("its Dataplane is not pinned, and xds.unpinned is refuse; if this peer runs its Envoy, add to it "+
			"the label %s, or grant this peer the node id in xds.access", pinFor(peer))
	}
	if why != "" {
		return Grant{}, &DeniedError{Peer: *peer, ID: t.ID, Reason: why}
	}
	if !peer.Root() {
		by := *peer
		g.unmet = func(pins Pins) string { return p.unmet(pins, &by) }
	}
	return g, nil
}

func (p *Proxies) decide(peer *Peer, t Target) (g Grant, why string) {
	if peer.Pod != nil {
		return p.byPod(peer.Pod, t)
	}
	if p.o.Rules == nil {
		return p.byDefault(peer, t)
	}
	for i := range p.rules {
		r := &p.rules[i]
		if !r.matchesPeer(peer) {
			continue
		}
		rule := fmt.Sprintf("xds.access[%d]", i)
		if !anyGlob(r.rule.Nodes, t.ID) {
			return g, fmt.Sprintf("%s matches the peer but does not list the node id; add it to nodes there, "+
				"or put another item before it", rule)
		}
		g = Grant{Rule: rule, Bring: r.rule.Bring, Services: r.rule.Services, Tags: r.rule.Tags}
		if peer.Token != nil && r.rule.Token != "" {
			return byToken(peer, t, g)
		}
		return g, ""
	}
	return g, fmt.Sprintf("no item of xds.access matches the peer; add one with %s and nodes: [%q]", peer.suggest(), t.ID)
}

func (r *proxyRule) matchesPeer(peer *Peer) bool {
	if r.rule.Pod != "" {
		return false
	}
	if c := r.rule.Certificate; c != "" && !slices.ContainsFunc(peer.Names, func(n string) bool { return glob(c, n) }) {
		return false
	}
	return r.who.matches(peer)
}

// byToken restricts a grant to what the peer's token names.
func byToken(peer *Peer, t Target, g Grant) (Grant, string) {
	c := peer.Token
	if ids := c.NodeIDs(); ids == "" || !glob(ids, t.ID) {
		return Grant{}, fmt.Sprintf("the token is for %q; create one for this node id (nearside token create)", ids)
	}
	g.Bring = g.Bring && len(c.Services) > 0
	if g.Services == nil {
		g.Services = c.Services
		return g, ""
	}
	var both []string // a service must match both lists; a pattern of one list is usually a plain name in the other
	for _, s := range c.Services {
		if anyGlob(g.Services, s) {
			both = append(both, s)
		}
	}
	for _, s := range g.Services {
		if anyGlob(c.Services, s) {
			both = append(both, s)
		}
	}
	g.Services = both
	return g, ""
}

var everything = []string{"*"}

func (p *Proxies) byDefault(peer *Peer, t Target) (g Grant, why string) {
	if peer.Root() || peer.is(p.o.AgentUID) {
		return Grant{Rule: "default of root and the agent's user", Bring: true, Services: everything, Tags: everything}, ""
	}
	if peer.Token != nil {
		return byToken(peer, t, Grant{Rule: "token", Bring: true})
	}
	switch {
	case slices.Contains(peer.Names, t.ID):
		return Grant{Rule: "certificate"}, ""
	case peer.in(p.o.GID):
		return Grant{Rule: "default of the group of xds.socket", StoredBy: true, Pinned: !p.o.Unpinned}, ""
	case !peer.Local && p.o.Insecure:
		return Grant{Rule: "xds.insecure", StoredBy: true}, ""
	case !peer.Local:
		return g, "xds.tcp needs a token (nearside token create) or a client certificate with the node id as a name"
	}
	return g, fmt.Sprintf("it is not in the group of xds.socket; add an item to xds.access with %s and nodes: [%q], "+
		"add the user to the group, or give its Envoy a token (nearside token create)", peer.suggest(), t.ID)
}

// suggest returns a matcher key that selects this peer.
func (p *Peer) suggest() string {
	switch {
	case p.Token != nil:
		return fmt.Sprintf("token: %q", p.Token.Subject)
	case len(p.Names) > 0:
		return fmt.Sprintf("certificate: %q", p.Names[0])
	case p.IsUser():
		return fmt.Sprintf("uid: %d", p.UID)
	}
	return "token: SUBJECT"
}
