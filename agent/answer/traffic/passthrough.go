package traffic

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/nearside-mesh/nearside/agent/answer/explain"
	"github.com/nearside-mesh/nearside/agent/base/plural"
)

// PassthroughOptions selects the proxy and the extent of a proposal.
type PassthroughOptions struct {
	Mesh, Dataplane string
	Name            string // of the policy; "": the name that the first suggestion has
	Limit           int    // maximum number of destinations to check
	// Wildcards is the number of hosts of a domain from which one match for the whole domain
	// replaces them; 0: never.
	Wildcards int
}

// PassthroughProposal describes a policy that permits refused connections. Lists are never null.
type PassthroughProposal struct {
	Mesh      string    `json:"mesh"`
	Dataplane string    `json:"dataplane"`
	Refused   int       `json:"refused"` // refused connections in the log
	Matches   []Match   `json:"matches"`
	Allowed   []Refused `json:"allowed"`     // permitted by the current policies
	Left      []Refused `json:"notProposed"` // no match can permit them
	More      int       `json:"more"`        // destinations beyond the limit
	Long      int       `json:"longLines"`   // log lines that were too long to read
	Forgotten int       `json:"forgotten"`   // connections to rare destinations that are not counted
	// Policy is the proposed policy as YAML with comments; "" if there are no matches.
	Policy string `json:"policy"`
}

// Match is a match of the policy with the refused connections that it would permit.
type Match struct {
	Type     string `json:"type" yaml:"type"`
	Value    string `json:"value" yaml:"value"`
	Port     uint32 `json:"port" yaml:"port"`
	Protocol string `json:"protocol" yaml:"protocol"`
	// ClosedAt is the filter chain criterion at which no chain matches; "" if no chain is selected.
	ClosedAt    string `json:"closedAt,omitempty" yaml:"-"`
	Connections int    `json:"connections" yaml:"-"`
	Times       `yaml:"-"`
	// Note says what to check before applying the match; "" for nothing.
	Note string `json:"note,omitempty" yaml:"-"`

	wildcard string // match for all hosts of its domain; "" if the match must not be widened
}

// Refused is a destination for which nothing is proposed.
type Refused struct {
	Address     string `json:"address"`
	ServerName  string `json:"serverName,omitempty"`
	Connections int    `json:"connections"`
	Times
	Reason string `json:"reason,omitempty"`
}

// Ask explains a connection under the current policies.
type Ask func(explain.ConnectionQuestion) (*explain.Flow, error)

const (
	typeDomain = "Domain"
	noteAny    = "the log does not record the protocol: keep either tls or tcp"
)

// ProposePassthrough checks each destination and proposes a match if the connection is still
// refused and a match can permit it. The policy is the first suggested one, with the matches of all
// suggestions.
func ProposePassthrough(c *Refusals, o PassthroughOptions, ask Ask) (*PassthroughProposal, error) {
	all := c.Destinations()
	p := &PassthroughProposal{Mesh: o.Mesh, Dataplane: o.Dataplane, Refused: c.Refused, Matches: []Match{},
		Allowed: []Refused{},
		Left:    []Refused{},
		More:    max(0, len(all)-o.Limit), Long: c.Long, Forgotten: c.Forgotten}
	var first *yaml.Node
	for _, d := range all[:min(len(all), o.Limit)] {
		protocols := []string{d.Spoke}
		if d.Spoke == SpokeAny {
			protocols = []string{SpokeTLS, SpokePlain}
		}
		var flows []*explain.Flow
		for _, s := range protocols {
			q := explain.ConnectionQuestion{Target: explain.Target{Mesh: o.Mesh, From: o.Dataplane, To: d.Address.String()}}
			if s == SpokeTLS {
				q.TLS, q.SNI = true, &d.ServerName
			}
			f, err := ask(q)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", d.label(), err)
			}
			flows = append(flows, f)
		}
		if !slices.ContainsFunc(flows, func(f *explain.Flow) bool { return f.Verdict != explain.VerdictAllowed }) {
			p.Allowed = append(p.Allowed, d.refused(""))
			continue
		}
		for i, f := range flows {
			if f.Verdict == explain.VerdictAllowed {
				continue
			}
			doc, m, err := suggested(f.Suggest)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", d.label(), err)
			}
			if m == nil {
				p.Left = append(p.Left, d.refused(cmp.Or(protocols[i], "connection")+": "+f.Reason))
				continue
			}
			if first == nil {
				first = doc
			}
			m.ClosedAt, m.Connections, m.Times, m.wildcard = f.ClosedAt, d.Count, d.times(), f.Wildcard
			if d.Spoke == SpokeAny {
				m.Note = noteAny
			}
			p.add(*m)
		}
	}
	if o.Wildcards > 1 {
		p.join(o.Wildcards)
	}
	if first == nil {
		return p, nil
	}
	return p, p.write(first, o.Name)
}

func (d *Destination) label() string {
	return strings.TrimSpace(d.Address.String() + " " + d.ServerName)
}

func (d *Destination) refused(reason string) Refused {
	return Refused{Address: d.Address.String(), ServerName: d.ServerName, Connections: d.Count, Times: d.times(),
		Reason: reason}
}

// suggested extracts the match from a suggested policy; nil if it has no single match.
func suggested(text string) (*yaml.Node, *Match, error) {
	if text == "" {
		return nil, nil, nil
	}
	doc := &yaml.Node{}
	if err := yaml.Unmarshal([]byte(text), doc); err != nil {
		return nil, nil, err
	}
	list := matchesOf(doc)
	if list == nil || len(list.Content) != 1 {
		return nil, nil, nil
	}
	m := &Match{}
	if err := list.Content[0].Decode(m); err != nil {
		return nil, nil, err
	}
	return doc, m, nil
}

// matchesOf returns the YAML node of the matches of a policy; nil if absent.
func matchesOf(doc *yaml.Node) *yaml.Node {
	for _, k := range []string{"spec", "default", "appendMatch"} {
		if doc = field(doc, k); doc == nil {
			return nil
		}
	}
	return doc
}

func field(n *yaml.Node, name string) *yaml.Node {
	if n.Kind == yaml.DocumentNode && len(n.Content) == 1 {
		n = n.Content[0]
	}
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return n.Content[i+1]
		}
	}
	return nil
}

// same reports whether two matches permit the same connections.
func (m *Match) same(n *Match) bool {
	return m.Type == n.Type && m.Value == n.Value && m.Port == n.Port && m.Protocol == n.Protocol
}

// add appends a match or adds its counts to an equal one.
func (p *PassthroughProposal) add(m Match) {
	i := slices.IndexFunc(p.Matches, func(n Match) bool { return n.same(&m) })
	if i < 0 {
		p.Matches = append(p.Matches, m)
		return
	}
	was := &p.Matches[i]
	was.Connections += m.Connections
	if m.First != "" && (was.First == "" || m.First < was.First) {
		was.First = m.First
	}
	was.Last = max(was.Last, m.Last)
	was.Note = cmp.Or(was.Note, m.Note)
}

// join replaces the matches for at least least hosts of a domain by one match for the domain. The
// explanation of a connection decides whether its host may be widened, since it knows the names of
// the meshes.
func (p *PassthroughProposal) join(least int) {
	wide := func(m *Match) *Match {
		if m.Type != typeDomain || m.wildcard == "" {
			return nil
		}
		return &Match{Type: m.Type, Value: m.wildcard, Port: m.Port, Protocol: m.Protocol}
	}
	hosts := map[Match]int{}
	for i := range p.Matches {
		if w := wide(&p.Matches[i]); w != nil {
			hosts[*w]++
		}
	}
	was := p.Matches
	p.Matches = []Match{}
	for _, m := range was {
		if w := wide(&m); w != nil && hosts[*w] >= least {
			w.ClosedAt, w.Connections, w.Times = m.ClosedAt, m.Connections, m.Times
			w.Note = fmt.Sprintf("replaces %d hosts; it permits every host of the domain",
				hosts[Match{Type: w.Type, Value: w.Value, Port: w.Port, Protocol: w.Protocol}])
			m = *w
		}
		p.add(m)
	}
	slices.SortStableFunc(p.Matches, func(a, b Match) int { return cmp.Compare(b.Connections, a.Connections) })
}

// write renders doc, a suggested policy, with all matches and comments that explain them.
func (p *PassthroughProposal) write(doc *yaml.Node, name string) error {
	list := matchesOf(doc)
	list.Content, list.Style = nil, 0
	for _, m := range p.Matches {
		n := &yaml.Node{}
		if err := n.Encode(m); err != nil {
			return err
		}
		n.Style = yaml.FlowStyle
		n.HeadComment = plural.Count(m.Connections, "connection") + m.Times.String()
		if m.ClosedAt != "" {
			n.HeadComment += "; no filter chain matches at " + m.ClosedAt
		}
		if m.Note != "" {
			n.HeadComment += "; " + m.Note
		}
		list.Content = append(list.Content, n)
	}
	if at := field(doc, "name"); name != "" && at != nil {
		at.SetString(name)
	}
	text, err := yamlText(doc)
	p.Policy = text
	return err
}

// String describes the destination with the number and times of its connections.
func (r *Refused) String() string {
	s := r.Address
	if r.ServerName != "" {
		s += " (" + r.ServerName + ")"
	}
	return s + ", " + plural.Count(r.Connections, "connection") + r.Times.String()
}
