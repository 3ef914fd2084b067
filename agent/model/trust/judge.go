package trust

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/gossip/engine"
	"github.com/nearside-mesh/nearside/gossip/engine/sign"
)

const noAnchor = "trust.mode is enforce, and this node has no trust file yet; " +
	"set trust.file to the trust file of the pool, or run nearside trust update -f FILE on this node"

// Record returns "" if a record may be in force, or the reason. In [ModeOff] and [ModeWarn], only
// records of reserved kinds are refused.
func (s *State) Record(r *engine.Record) string {
	switch r.Key.Kind {
	case KindFile:
		return s.fileRecord(r)
	case KindEnrollment:
		if s.file == nil && s.damage == "" {
			return s.unlessListed("enrollments require a trust file")
		}
		return s.enrollment(r)
	case KindHeal:
		if s.Mode() == ModeOff {
			return ""
		}
		return s.heal(r)
	}
	return s.unlessListed(s.Explain(r))
}

// Explain returns why a record would not be in force in [ModeEnforce], or "".
func (s *State) Explain(r *engine.Record) string {
	if s.damage != "" {
		return s.damage
	}
	if Reserved(r.Key.Kind) {
		return s.Record(r)
	}
	signer := r.Signer()
	if signer == (sign.ID{}) {
		return "the record is not signed; sign it again with: nearside keys resign"
	}
	id := ID(signer)
	if why := s.revokes(r, id); why != "" {
		return why
	}
	g := s.grants[id]
	if g == nil {
		return s.unlisted(id)
	}
	if why := g.valid(r); why != "" {
		return why
	}
	key := resource.Key(r.Key)
	return s.coversBody(g, access.ActionOn(verbOf(r), key), key, r.Body)
}

// verbOf returns the verb of a change. The lineage of a record says whether it replaces another
// one.
func verbOf(r *engine.Record) string {
	switch {
	case r.Deleted:
		return access.VerbDelete
	case len(r.Lineage) > 0:
		return access.VerbUpdate
	}
	return access.VerbCreate
}

// unlisted explains that a key has no role.
func (s *State) unlisted(id ID) string {
	switch {
	case s.file == nil:
		return noAnchor
	case s.file.rootOf(id) != nil:
		return fmt.Sprintf("it is signed by the root key %s, which may sign no resources; sign it with the key of an "+
			"operator", s.file.rootOf(id).Name)
	case engine.NodeID(id) == s.o.Self:
		return fmt.Sprintf("the trust file grants no role to this node (%s), so writes of users of its API are not in "+
			"force; sign the write with the key of an operator (--sign KEY)", id)
	case s.enrolled[id] != nil:
		return fmt.Sprintf("the trust file grants no role to node %s, which signed it", s.enrolled[id].Name)
	}
	return fmt.Sprintf("it is signed by the key %s, to which the trust file grants no role", id)
}

// revokes returns why a revocation voids a record, or "".
func (s *State) revokes(r *engine.Record, id ID) string {
	x := s.revoked[id]
	switch {
	case x == nil:
		return ""
	case x.Keep == nil && r.HLC.Time().Before(x.Since):
		return ""
	case x.Keep != nil:
		name := RecordID(r)
		for _, k := range *x.Keep {
			if k == name {
				return ""
			}
		}
	}
	return s.revokedKey(id)
}

// valid returns "" if the key was valid at the date of a record, or the reason.
func (g *grant) valid(r *engine.Record) string {
	at := r.HLC.Time()
	switch {
	case !g.notBefore.IsZero() && at.Before(g.notBefore):
		return fmt.Sprintf("the key of %s is valid only from %s", g.name, g.notBefore.UTC().Format(time.RFC3339))
	case !g.notAfter.IsZero() && at.After(g.notAfter):
		return fmt.Sprintf("the key of %s expired at %s, before the date of the record", g.name,
			g.notAfter.UTC().Format(time.RFC3339))
	}
	return ""
}

// fileRecord judges a record with a trust file. Besides the signatures in its body, a root must
// have signed the record, so other keys cannot date a file.
func (s *State) fileRecord(r *engine.Record) string {
	switch {
	case r.Key.Name != FileName || r.Key.Mesh != "":
		return fmt.Sprintf("a trust file has the name %s and no mesh", FileName)
	case r.Deleted:
		return "a trust file cannot be deleted; publish one with the mode off"
	case s.damage != "":
		return s.damage
	case s.file == nil && s.o.Anchored:
		return noAnchor
	}
	f, err := s.Check(r.Body)
	if err != nil {
		return oneLine(err)
	}
	if signer := ID(r.Signer()); f.rootOf(signer) == nil && (s.file == nil || s.file.rootOf(signer) == nil) {
		return "the record of the trust file is not signed by a root key; publish it with: nearside trust update"
	}
	return ""
}

// enrollment judges a record with an enrollment.
func (s *State) enrollment(r *engine.Record) string {
	if s.damage != "" {
		return s.damage
	}
	if !r.Deleted {
		e, err := DecodeEnrollment(r.Body)
		switch {
		case err != nil:
			return "the enrollment is invalid: " + oneLine(err)
		case e.Key.String() != r.Key.Name || r.Key.Mesh != "":
			return fmt.Sprintf("the enrollment is for the node %s, but its record has the name %s", e.Key, r.Key.Name)
		}
	}
	if s.file == nil {
		return "enrollments require a trust file"
	}
	id := ID(r.Signer())
	if s.file.rootOf(id) != nil {
		return ""
	}
	if why := s.revokes(r, id); why != "" {
		return why
	}
	g := s.grants[id]
	switch {
	case id == (ID{}):
		return "the enrollment is not signed"
	case g == nil || !g.role.enrolls():
		return fmt.Sprintf("the enrollment is signed by the key %s, which may not enroll nodes; sign it with a root key, "+
			"or with a key whose role has the feature %s", id, FeatureEnroll)
	}
	return g.valid(r)
}

// heal judges a heal statement.
func (s *State) heal(r *engine.Record) string {
	switch {
	case s.damage != "":
		return s.damage
	case s.file == nil:
		return noAnchor
	case s.file.rootOf(ID(r.Signer())) == nil:
		return "the heal statement is not signed by a root key; where trust is on, run: nearside pool heal --sign ROOT-KEY"
	}
	return ""
}

// Manifest returns "" if a manifest may be in force, or the reason.
func (s *State) Manifest(m *engine.Manifest) string { return s.unlessListed(s.ExplainManifest(m)) }

// ExplainManifest returns why a manifest would not be in force in [ModeEnforce], or "".
func (s *State) ExplainManifest(m *engine.Manifest) string {
	signer := m.Signer()
	switch {
	case !m.Directory && m.Node == s.o.Self:
		return ""
	case s.damage != "":
		return s.damage
	case signer == (sign.ID{}):
		return "it is not signed; upgrade the agent of the node that published it"
	}
	if why := s.revokedKey(ID(signer)); why != "" {
		return why
	}
	if m.Directory {
		return s.directory(m, ID(signer))
	}
	if why := s.admits(m.Node, m.Name); why != "" && !m.Forgotten {
		return why
	}
	if engine.NodeID(signer) == s.o.Self {
		return ""
	}
	return s.admits(engine.NodeID(signer), "")
}

// ExplainNode returns why data of a node would not be in force in [ModeEnforce], whether this node
// has any or not, or "".
func (s *State) ExplainNode(node engine.NodeID, name string) string {
	if node == s.o.Self {
		return ""
	}
	return cmp.Or(s.revokedKey(ID(node)), s.admits(node, name))
}

// admits is [State.Member] for data of a node, as it would be in [ModeEnforce].
func (s *State) admits(node engine.NodeID, name string) string {
	if s.o.Admit == AdmitKey {
		return ""
	}
	switch e := s.enrolled[ID(node)]; {
	case e == nil:
		return fmt.Sprintf("node %s has no enrollment; enroll it with: nearside trust enroll %s", node, node)
	case e.expired(s.now):
		return fmt.Sprintf("the enrollment of node %s expired at %s", e.Name, e.NotAfter.UTC().Format(time.RFC3339))
	case name != "" && name != e.Name:
		return fmt.Sprintf("the enrollment of node %s has the name %s, not %s", node, e.Name, name)
	}
	return ""
}

// KindDirectory is the kind of the entry that describes a published directory.
const KindDirectory = "Directory"

// directory judges the entries of a published directory: the role of the publisher must allow it to
// create, update, and delete each of them.
func (s *State) directory(m *engine.Manifest, signer ID) string {
	g := s.grants[signer]
	if g == nil {
		return s.unlisted(signer)
	}
	for i := range m.Entries {
		key := resource.Key(m.Entries[i].Key)
		if key.Kind == KindDirectory {
			continue
		}
		for _, verb := range writeVerbs {
			if why := g.covers(access.ActionOn(verb, key)); why != "" {
				return why
			}
		}
	}
	return ""
}

// ExplainItem returns why a resource of a published directory would not be in force in
// [ModeEnforce] because of its danger features, or "". signer is that of the manifest.
func (s *State) ExplainItem(signer sign.ID, key resource.Key, body []byte) string {
	g := s.grants[ID(signer)]
	if g == nil {
		return ""
	}
	return s.coversBody(g, access.ActionOn(access.VerbUpdate, key), key, body)
}

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
