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

// PassthroughOptions say what a proposal is about.
type PassthroughOptions struct {
	Mesh, Dataplane string
	Name            string // of the policy; "" for the one that the first match suggests
	Limit           int    // of destinations that are looked at
	// Wildcards is how many hosts of one domain are joined into a match for the whole domain, 0 for
	// never.
	Wildcards int
}

// PassthroughProposal is what would let refused connections out. Lists are never null.
type PassthroughProposal struct {
	Mesh      string    `json:"mesh"`
	Dataplane string    `json:"dataplane"`
	Refused   int       `json:"refused"` // connections in the log
	Matches   []Match   `json:"matches"`
	Allowed   []Refused `json:"allowed"`     // by the policies in force now
	Left      []Refused `json:"notProposed"` // that no match lets out
	More      int       `json:"more"`        // destinations beyond the limit
	Long      int       `json:"longLines"`   // lines of the log that were left out
	Forgotten int       `json:"forgotten"`   // connections to rare destinations that are not counted
	// Policy is what to apply, as YAML with comments; "" where there are no matches.
	Policy string `json:"policy"`
}

// Match permits connections, with those that were refused.
type Match struct {
	Type     string `json:"type" yaml:"type"`
	Value    string `json:"value" yaml:"value"`
	Port     uint32 `json:"port" yaml:"port"`
	Protocol string `json:"protocol" yaml:"protocol"`
	// ClosedAt is the level of the choice of a filter chain at which nothing fits, "" where none is
	// chosen.
	ClosedAt    string `json:"closedAt,omitempty" yaml:"-"`
	Connections int    `json:"connections" yaml:"-"`
	Times       `yaml:"-"`
	// Note is what to look at before it is applied, "" for nothing.
	Note string `json:"note,omitempty" yaml:"-"`

	wildcard string // for all hosts of its domain; "" where it must not be widened
}

// Refused is a destination for which nothing is proposed.
type Refused struct {
	Address     string `json:"address"`
	ServerName  string `json:"serverName,omitempty"`
	Connections int    `json:"connections"`
	Times
	Reason string `json:"reason,omitempty"`
}

// Ask answers what becomes of a connection.
type Ask func(explain.ConnectionQuestion) (*explain.Flow, error)

const (
	typeDomain = "Domain"
	noteAny    = "the log does not say what was spoken: keep tls or tcp"
)

// ProposePassthrough asks about each destination, and proposes a match for each that is refused
// still and that a match lets out. The policy is that which the answers suggest, with all of their
// matches.
func ProposePassthrough(c *Refusals, o PassthroughOptions, ask Ask) (*PassthroughProposal, error) {
	all := c.Destinations()
	p := &PassthroughProposal{Mesh: o.Mesh, Dataplane: o.Dataplane, Refused: c.Refused, Matches: []Match{},
		Allowed: []Refused{},
		Left:    []Refused{},
		More:    max(0, len(all)-o.Limit), Long: c.Long, Forgotten: c.Forgotten}
	var first *yaml.Node
	for _, d := range all[:min(len(all), o.Limit)] {
		spoken := []string{d.Spoke}
		if d.Spoke == SpokeAny {
			spoken = []string{SpokeTLS, SpokePlain}
		}
		var flows []*explain.Flow
		for _, s := range spoken {
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
				p.Left = append(p.Left, d.refused(cmp.Or(spoken[i], "connection")+": "+f.Reason))
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

// suggested reads the match out of a policy that an answer suggests; nil where it suggests no
// match.
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

// matchesOf is the list of matches of a policy; nil for none.
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

// same reports whether two matches permit the same.
func (m *Match) same(n *Match) bool {
	return m.Type == n.Type && m.Value == n.Value && m.Port == n.Port && m.Protocol == n.Protocol
}

// add adds a match, or counts it with one that permits the same.
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

// join puts one match for a domain in the place of those for many hosts of it. Whoever knows the
// names of the meshes says for which hosts there is one.
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
			w.Note = fmt.Sprintf("instead of %d hosts; it lets every host of the domain out",
				hosts[Match{Type: w.Type, Value: w.Value, Port: w.Port, Protocol: w.Protocol}])
			m = *w
		}
		p.add(m)
	}
	slices.SortStableFunc(p.Matches, func(a, b Match) int { return cmp.Compare(b.Connections, a.Connections) })
}

// write writes the policy: a suggested one with all of the matches, and comments that say what they
// are for.
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
			n.HeadComment += "; nothing fits at " + m.ClosedAt
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

// String is the destination with what the log says of it.
func (r *Refused) String() string {
	s := r.Address
	if r.ServerName != "" {
		s += " (" + r.ServerName + ")"
	}
	return s + ", " + plural.Count(r.Connections, "connection") + r.Times.String()
}
