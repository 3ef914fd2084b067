package peers

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/agent/base/plural"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/trust"
	"github.com/nearside-mesh/nearside/gossip"
	"github.com/nearside-mesh/nearside/gossip/engine"
	"github.com/nearside-mesh/nearside/gossip/engine/sign"
)

const (
	maxRefusals = 100                 // that the API lists
	expirySoon  = 30 * 24 * time.Hour // before the end of a key
)

// Types of owners in [api.TrustRefusal].
const (
	refusedNode      = "Node"
	refusedDirectory = "Directory"
)

// Trust returns the trust of this node, and the data that it does not permit.
func (s *Source) Trust() api.Trust {
	state := s.policy.State()
	mode := s.policy.ConfigMode()
	out := api.Trust{Mode: state.Mode(), ConfigMode: mode, Admit: state.Admit(), Cluster: s.o.Cluster, Node: s.o.Node,
		Anchored: state.Anchored(), Problems: s.policy.Problems(), Nodes: []api.TrustNode{},
		Refused: []api.TrustRefusal{}}
	s.addTrustFile(&out, state)
	s.addTrustNodes(&out, state)
	s.addRefusals(&out, state)
	s.addExpiring(&out, state)
	return out
}

func (s *Source) addTrustFile(out *api.Trust, state *trust.State) {
	f := state.File()
	if f == nil {
		return
	}
	from, since := s.policy.First()
	t := &api.TrustFile{Version: f.Version, Mode: f.Mode, Threshold: f.Threshold, From: from, Since: since,
		Text: string(state.Text()), Keys: []api.TrustKey{}, Roles: []api.TrustRole{}}
	for _, r := range f.Roots {
		t.Roots = append(t.Roots, api.TrustKey{Name: r.Name, ID: r.Key.ID().String()})
	}
	for _, k := range f.Keys {
		t.Keys = append(t.Keys, api.TrustKey{Name: k.Name, ID: k.Key.ID().String(), Role: k.Role, NotBefore: k.NotBefore,
			NotAfter: k.NotAfter})
	}
	for _, r := range f.Revoked {
		t.Revoked = append(t.Revoked, api.TrustKey{Name: r.Name, ID: r.Key.String(), Since: r.Since})
	}
	for _, r := range f.Roles {
		t.Roles = append(t.Roles, api.TrustRole{Name: r.Name, Kinds: r.Kinds, Meshes: r.Meshes, Names: r.Names,
			Verbs: r.Verbs, Features: r.Features})
	}
	out.File = t
}

// addTrustNodes adds the nodes of the pool, and those with an enrollment.
func (s *Source) addTrustNodes(out *api.Trust, state *trust.State) {
	nodes := map[engine.NodeID]*api.TrustNode{}
	of := func(id engine.NodeID, name string) *api.TrustNode {
		n := nodes[id]
		if n == nil {
			n = &api.TrustNode{ID: id.String()}
			nodes[id] = n
		}
		n.Name = cmp.Or(n.Name, name)
		return n
	}
	for _, m := range s.node.Members() {
		n := of(m.Node, m.Name)
		n.Zone, n.Signed = m.Zone, m.Signed || m.Self
		n.Live = m.State == gossip.StateAlive
		if m.State == gossip.StateRefused {
			n.Reason = m.Reason
		}
	}
	for _, m := range s.node.Manifests() {
		if m.Directory || m.Forgotten {
			continue
		}
		n := of(m.Node, m.Name)
		n.Signed = n.Signed || m.Signer() != sign.ID{}
		if out.Mode != trust.ModeOff {
			n.Reason = state.ExplainManifest(m)
		}
	}
	for _, e := range state.Enrollments() {
		n := of(engine.NodeID(e.Key), e.Name)
		n.Enrolled, n.Services, n.NotAfter = state.Enrollment(engine.NodeID(e.Key)) != nil, e.Services, e.NotAfter
	}
	for id, n := range nodes {
		if r := state.Role(sign.ID(id)); r != nil {
			n.Role = r.Name
		}
		if out.Mode != trust.ModeOff {
			n.Reason = cmp.Or(n.Reason, state.ExplainNode(id, n.Name)) // it may have published nothing that is kept
		}
		n.Name = cmp.Or(n.Name, n.ID)
		out.Nodes = append(out.Nodes, *n)
	}
	slices.SortFunc(out.Nodes, func(a, b api.TrustNode) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.ID, b.ID))
	})
}

// addRefusals adds the data that their signers may not write. Without trust it only counts unsigned
// records.
func (s *Source) addRefusals(out *api.Trust, state *trust.State) {
	writers := s.writers()
	var all []api.TrustRefusal
	explained := s.explained(state)
	for _, r := range s.node.Versions() {
		unsigned := r.Signer() == sign.ID{}
		if unsigned && !trust.Reserved(r.Key.Kind) {
			out.Unsigned++
		}
		if why := explained[r]; why != "" && out.Mode != trust.ModeOff {
			x := api.TrustRefusal{Type: r.Key.Kind, Mesh: r.Key.Mesh, Name: r.Key.Name,
				Node: cmp.Or(writers[[8]byte(r.Writer)], unnamed([8]byte(r.Writer))), Reason: why}
			if !unsigned {
				x.Signer = r.Signer().String()
			}
			all = append(all, x)
		}
	}
	list, total := s.node.Refusals()
	out.Total = total[engine.ReasonTrust] + total[engine.ReasonName]
	for _, r := range list {
		if r.Reason != engine.ReasonTrust && r.Reason != engine.ReasonName {
			continue
		}
		x := api.TrustRefusal{Type: r.Key.Kind, Mesh: r.Key.Mesh, Name: r.Key.Name, Reason: r.Detail}
		if r.Key == (engine.Key{}) {
			x.Type, x.Name = refusedNode, cmp.Or(s.nameOf(r.Node), r.Node.String())
		} else {
			x.Node = cmp.Or(writers[[8]byte(r.Writer)], unnamed([8]byte(r.Writer)))
		}
		if out.Total--; !slices.Contains(all, x) { // the engine has several versions
			all = append(all, x)
		}
	}
	if out.Mode != trust.ModeOff {
		for _, m := range s.node.Manifests() {
			if why := state.ExplainManifest(m); why != "" && !m.Forgotten {
				x := api.TrustRefusal{Type: refusedNode, Name: cmp.Or(m.Name, m.Node.String()), Reason: why}
				if m.Directory {
					x.Type = refusedDirectory
				}
				all = append(all, x)
			}
		}
		all = append(all, s.itemRefusals()...)
	}
	slices.SortFunc(all, func(a, b api.TrustRefusal) int {
		return cmp.Or(strings.Compare(a.Type, b.Type), strings.Compare(a.Mesh, b.Mesh), strings.Compare(a.Name, b.Name),
			strings.Compare(a.Reason, b.Reason))
	})
	out.Total += len(all) // and those that Refusals omits
	out.Refused = append(out.Refused, all[:min(len(all), maxRefusals)]...)
}

// itemRefusals returns the items beyond enrollments and roles.
func (s *Source) itemRefusals() (out []api.TrustRefusal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for of, items := range s.outside {
		name := cmp.Or(s.names[of], s.nameOf(of), of.String())
		for key, why := range items {
			out = append(out, api.TrustRefusal{Type: key.Kind, Mesh: key.Mesh, Name: key.Name, Node: name, Reason: why})
		}
	}
	return out
}

// explained returns why records would not be in force in the mode enforce. It reuses the results of
// the last call with the same state.
func (s *Source) explained(state *trust.State) map[*engine.Record]string {
	s.verdicts.Lock()
	defer s.verdicts.Unlock()
	old := s.verdicts.of
	if s.verdicts.state != state {
		old = nil
	}
	next := map[*engine.Record]string{}
	for _, r := range s.node.Versions() {
		why, known := old[r]
		if !known {
			why = state.Explain(r)
		}
		next[r] = why
	}
	s.verdicts.state, s.verdicts.of = state, next
	return next
}

// addExpiring adds the keys and enrollments that expire soon.
func (s *Source) addExpiring(out *api.Trust, state *trust.State) {
	soon := s.o.Now().Add(expirySoon)
	add := func(name string, at time.Time) {
		if !at.IsZero() && at.Before(soon) {
			out.Expiring = append(out.Expiring, api.TrustExpiry{Name: name, NotAfter: at})
		}
	}
	if f := state.File(); f != nil {
		for _, k := range f.Keys {
			add("key "+k.Name, k.NotAfter)
		}
	}
	for _, e := range state.Enrollments() {
		add("enrollment of node "+e.Name, e.NotAfter)
	}
}

// trustCheck reports the trust of this node.
func (s *Source) trustCheck() api.Check {
	t := s.Trust()
	out := api.Check{Name: "pool-trust", OK: true, Error: len(t.Problems) > 0}
	problems := t.Problems
	add := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	if t.File == nil && t.Mode != trust.ModeOff && len(t.Problems) == 0 {
		if t.Anchored {
			out.Error = true
			add("this node has no trust file, so it accepts nothing from other nodes; set trust.file to the trust file of the " +
				"pool, or run nearside trust update -f FILE --root KEY on this node")
		} else {
			add("trust.mode is %s, but the pool has no trust file; make one with nearside trust init", t.Mode)
		}
	}
	if t.Mode != trust.ModeOff {
		var unsigned []string
		for _, n := range t.Nodes {
			if !n.Signed && n.Live {
				unsigned = append(unsigned, n.Name)
			}
		}
		if len(unsigned) > 0 {
			add("nodes that do not sign their data: %s; upgrade their agents", named(unsigned))
		}
		if t.Total > 0 {
			state := "in force, and would not be with mode enforce"
			if t.Mode == trust.ModeEnforce {
				state = "not in force"
			}
			x := t.Refused[0]
			add("%s, because their signers may not write them (%s); the first is %s: %s",
				plural.Form(t.Total, "1 item of the pool is ", "%d items of the pool are ")+state, "see nearside trust show",
				resource.Key{Kind: x.Type, Mesh: x.Mesh, Name: x.Name}, x.Reason)
		}
	}
	for _, x := range t.Expiring {
		state := "expires"
		if x.NotAfter.Before(s.o.Now()) {
			state = "expired"
		}
		add("%s %s at %s; renew it with %s", x.Name, state, x.NotAfter.UTC().Format(time.RFC3339), renewal(x.Name))
	}
	if out.Degraded = len(problems) > 0; out.Degraded {
		out.Reason = strings.Join(problems, "; ")
		return out
	}
	switch {
	case t.Mode == trust.ModeOff:
		out.Reason = "off: every member of the pool can change all of its resources"
		if t.Unsigned > 0 {
			out.Reason += plural.Form(t.Unsigned, "; 1 record is not signed", "; %d records are not signed")
		}
	default:
		out.Reason = fmt.Sprintf("%s, with version %d of the trust file", t.Mode, t.File.Version)
	}
	return out
}

// renewal returns the command that renews a key or an enrollment.
func renewal(name string) string {
	if strings.HasPrefix(name, "key ") {
		return "nearside trust edit"
	}
	return "nearside trust enroll"
}

// TrustRecords returns the records of the pool with their signers, sorted by key. A signer selects
// those of one key; "unsigned" those without a signature, and "" all. Versions that the policy
// keeps out of force are not included.
func (s *Source) TrustRecords(signer string) (out []api.TrustRecord) {
	explained := s.explained(s.policy.State())
	for r, why := range explained {
		x := api.TrustRecord{Ref: api.RefOf(resource.Key(r.Key)), ID: trust.RecordID(r), Reason: why, InForce: true}
		if s.harmless(r) {
			x.Record = base64.StdEncoding.EncodeToString(r.Encoded())
		}
		if id := r.Signer(); id != (sign.ID{}) {
			x.Signer = id.String()
		}
		if signer == "" || signer == x.Signer || signer == "unsigned" && x.Signer == "" {
			out = append(out, x)
		}
	}
	slices.SortFunc(out, func(a, b api.TrustRecord) int { return a.Key().Compare(b.Key()) })
	return out
}

// harmless reports whether a record certainly contains no secret: its body is exactly the redacted
// form of its resource.
func (s *Source) harmless(r *engine.Record) bool {
	if r.Deleted || trust.Reserved(r.Key.Kind) {
		return true
	}
	res, err := s.o.Decode(r.Body)
	if err != nil {
		return false
	}
	shown, err := resource.Shown(res)
	return err == nil && bytes.Equal(shown, r.Body)
}

// Signer returns the name of a key in the trust file or the enrollments, or "".
func (s *Source) Signer(id sign.ID) string { return s.policy.State().NameOf(id) }
