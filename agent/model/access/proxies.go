package access

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// LabelUser is the label of a Dataplane that names the user, by name or number, whose Envoy alone
// may be its proxy. Root may be it too.
const LabelUser = "nearside.io/user"

// ProxyRule is an item of xds.access: which proxies the peers that it matches may be.
type ProxyRule struct {
	Matcher
	Certificate string   `json:"certificate,omitempty" max:"512" doc:"DNS or URI name in the client certificate; * stands for any characters."`
	Nodes       []string `json:"nodes,omitempty" max:"256" doc:"Node ids that the peer may take, MESH.NAME; * stands for any characters. Empty: none."`
	Bring       bool     `json:"bring,omitempty" doc:"Lets the peer bring its Dataplane in the node metadata."`
	Services    []string `json:"services,omitempty" max:"256" doc:"Values of kuma.io/service that a Dataplane in the metadata may claim; * stands for any characters. Empty: none."`
	Tags        []string `json:"tags,omitempty" max:"256" doc:"Other tags and labels that such a Dataplane may have, KEY=VALUE; * stands for any characters. Empty: kuma.io/protocol alone."`
}

// Grant says what a peer may do as one proxy.
type Grant struct {
	Rule     string   // what gives it, for people: "xds.access[2]"
	Bring    bool     // it may bring its Dataplane in the node metadata
	Services []string // patterns of the kuma.io/service values that such a Dataplane may claim
	Tags     []string // patterns of its other tags and labels, KEY=VALUE
	StoredBy bool     // it may be only a proxy whose Dataplane came from a file or the API
}

// tagProtocol says how a service speaks. It gives no identity, and nothing selects by it.
const tagProtocol = "kuma.io/protocol"

// Claim says whether a Dataplane with such services, and such other tags and labels as KEY=VALUE,
// may stand in the node metadata. Tags are part of the certificate of a proxy, and MeshServices and
// policies select by tags and labels, so that one that is not given would be somebody else's name.
// The error names the key of the config to set.
func (g *Grant) Claim(services, tags []string) error {
	if !g.Bring {
		return fmt.Errorf("%s gives the node id without a Dataplane in the node metadata; "+
			"apply the Dataplane from a file or over the API, or set bring and services in xds.access", g.Rule)
	}
	for _, s := range services {
		if !anyGlob(g.Services, s) {
			return fmt.Errorf("the Dataplane in the node metadata claims %s=%q, which %s does not give; "+
				"add it to services there", resource.TagService, clip.Value(s), g.Rule)
		}
	}
	for _, t := range tags {
		if key, value, _ := strings.Cut(t, "="); key != tagProtocol && key != LabelUser && !anyGlob(g.Tags, t) {
			return fmt.Errorf("the Dataplane in the node metadata has the tag or label %s=%q, which %s does not give; "+
				"add %q to tags there", clip.Value(key), clip.Value(value), g.Rule, clip.Value(t))
		}
	}
	return nil
}

// Target is the proxy that a peer wants to be.
type Target struct {
	ID string // node id
	// Brought says that its Dataplane is in the store and came from the metadata of an Envoy.
	Brought bool
	// Pinned is the value of [LabelUser] of its Dataplane, "" for none.
	Pinned string
}

// DeniedError says that a peer may not be a proxy.
type DeniedError struct {
	Peer   Peer
	ID     string
	Reason string
}

// Error names the peer, the node id, and the key to set.
func (e *DeniedError) Error() string {
	return fmt.Sprintf("%s may not take the node id %q: %s", e.Peer, e.ID, e.Reason)
}

// ProxyOptions are what [NewProxies] needs.
type ProxyOptions struct {
	Rules    []ProxyRule // nil: the default, see [Proxies.Decide]
	AgentUID uint32
	GID      int  // of the xDS socket; negative: none
	Insecure bool // peers on TCP need neither token nor certificate
}

// Proxies decides which peer may be which proxy. It is safe for concurrent use.
type Proxies struct {
	o     ProxyOptions
	rules []proxyRule
	users users
}

type proxyRule struct {
	who  matcher
	rule ProxyRule
}

// NewProxies resolves the users and groups of the rules. It fails with all rules that name no peer.
func NewProxies(o ProxyOptions) (*Proxies, error) {
	p := &Proxies{o: o}
	var errs []error
	for i, r := range o.Rules {
		m := matcher{group: -1}
		if r.Certificate == "" || r.Matcher != (Matcher{}) {
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

// Missing lists the rules that match nobody since their user or group does not exist.
func (p *Proxies) Missing() (out []string) {
	for i, r := range p.rules {
		if r.who.missing != "" {
			out = append(out, fmt.Sprintf("xds.access[%d]: %s", i, r.who.missing))
		}
	}
	return out
}

// maxRangeUsers bounds the user ids that [Proxies.Users] takes from ranges.
const maxRangeUsers = 256

// Users returns the ids of the users that rules name, by user or by small ranges of ids, sorted.
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

// AsksCgroup says whether a rule looks at the cgroups of peers.
func (p *Proxies) AsksCgroup() bool {
	return slices.ContainsFunc(p.rules, func(r proxyRule) bool { return r.rule.Cgroup != "" })
}

// Decide returns what the peer may do as a proxy, or a [DeniedError].
//
// With rules, the first one that matches the peer decides, and none refuses. Without rules, root
// and the agent's user may be every proxy and bring every Dataplane; who has a token may be what it
// names and bring what services it names; who shows a certificate may be the node ids that it
// names; members of the socket's group, and with Insecure everybody on TCP, may be the proxies
// whose Dataplanes came from files or the API.
//
// In both cases a Dataplane with the label [LabelUser] is for that user and root, and a token gives
// nothing that it does not name.
func (p *Proxies) Decide(peer *Peer, t Target) (Grant, error) {
	g, why := p.decide(peer, t)
	switch {
	case why != "":
	case t.Pinned != "" && !peer.Root() && !p.users.is(peer, t.Pinned):
		why = fmt.Sprintf("its Dataplane has the label %s: %s; start its Envoy as that user, or change the label",
			LabelUser, t.Pinned)
	case g.StoredBy && t.Brought:
		why = "its Dataplane came with the Envoy of another user; apply it from a file or over the API, " +
			"or let an item of xds.access give this peer the node id"
	}
	if why != "" {
		return Grant{}, &DeniedError{Peer: *peer, ID: t.ID, Reason: why}
	}
	return g, nil
}

func (p *Proxies) decide(peer *Peer, t Target) (g Grant, why string) {
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
			return g, fmt.Sprintf("%s matches the peer and does not list the node id; add it to nodes there, "+
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
	if c := r.rule.Certificate; c != "" && !slices.ContainsFunc(peer.Names, func(n string) bool { return glob(c, n) }) {
		return false
	}
	return r.who.matches(peer)
}

// byToken narrows a grant to what the peer's token names.
func byToken(peer *Peer, t Target, g Grant) (Grant, string) {
	c := peer.Token
	if ids := c.NodeIDs(); ids == "" || !glob(ids, t.ID) {
		return Grant{}, fmt.Sprintf("the token is for %q; make one for this node id (nearside token create)", ids)
	}
	g.Bring = g.Bring && len(c.Services) > 0
	if g.Services == nil {
		g.Services = c.Services
		return g, ""
	}
	var both []string // a service must be in both lists, and a pattern of one is mostly a plain name in the other
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
		return Grant{Rule: "default of the group of xds.socket", StoredBy: true}, ""
	case !peer.Local && p.o.Insecure:
		return Grant{Rule: "xds.insecure", StoredBy: true}, ""
	case !peer.Local:
		return g, "xds.tcp needs a token (nearside token create) or a client certificate with the node id as a name"
	}
	return g, fmt.Sprintf("it is not in the group of xds.socket; add an item to xds.access with %s and nodes: [%q], "+
		"add the user to the group, or give its Envoy a token (nearside token create)", peer.suggest(), t.ID)
}

// suggest is the key of a matcher that is for this peer.
func (p *Peer) suggest() string {
	switch {
	case p.Token != nil:
		return fmt.Sprintf("token: %q", p.Token.Subject)
	case len(p.Names) > 0:
		return fmt.Sprintf("certificate: %q", p.Names[0])
	case p.Local && !p.Foreign:
		return fmt.Sprintf("uid: %d", p.UID)
	}
	return "token: SUBJECT"
}
