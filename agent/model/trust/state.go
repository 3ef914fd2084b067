package trust

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/gossip/engine"
	"github.com/nearside-mesh/nearside/gossip/engine/sign"
)

// Kinds of records that are not resources.
const (
	KindFile       = "TrustFile"      // body: an [Envelope]; name: [FileName]
	KindEnrollment = "NodeEnrollment" // body: an [Enrollment]; name: the ID of the node
	KindHeal       = "PoolHeal"
)

// FileName is the name of the record with the trust file.
const FileName = "trust"

// Media types of the bodies.
const (
	MediaFile       = "application/vnd.nearside.trust"
	MediaEnrollment = "application/json"
)

// Reserved reports whether records of a kind are not resources.
func Reserved(kind string) bool {
	return kind == KindFile || kind == KindEnrollment || kind == KindHeal
}

// Options configures the trust of a node.
type Options struct {
	Cluster string // gossip.cluster
	Mode    string // trust.mode of the config
	Admit   string // gossip.admit: "key", "enrolled", or "" for the default
	// Self is the ID of this node. Its own manifest is always in force on it.
	Self engine.NodeID
	// Anchored refuses the first trust file unless [State.Adopt] sets it.
	Anchored bool
	// Features returns the dangerous features that a resource uses, given the body of its record. It
	// must depend only on its arguments. Nil: none.
	Features func(key resource.Key, body []byte) access.Features
}

// State is the trust of a node at one time. It is immutable.
type State struct {
	o        Options
	now      time.Time // enrollments are judged at this time
	file     *File     // nil: there is none
	text     []byte    // of file: its envelope
	sum      [32]byte  // of the document of file
	damage   string    // why the trust file of this node cannot be read; "": it can
	enrolled map[ID]*Enrollment
	grants   map[ID]*grant
	revoked  map[ID]*Revocation
}

// grant is the permission of a key.
type grant struct {
	name                string // of the key, for messages
	role                *Role
	notBefore, notAfter time.Time
}

// New returns the state without a trust file.
func New(o Options) *State {
	return &State{o: o, grants: map[ID]*grant{}, revoked: map[ID]*Revocation{}, enrolled: map[ID]*Enrollment{}}
}

// Errors of [State.Accept].
var (
	ErrOlder    = errors.New("a trust file with a higher version is in force")
	ErrDisagree = errors.New("another trust file with the same version is in force; publish one with a higher version")
)

// Check returns the trust file in a text, if it may follow the one in force. The same file is
// permitted. The first one must be signed by enough of the roots that it lists.
func (s *State) Check(text []byte) (*File, error) {
	e, err := ParseEnvelope(text)
	if err != nil {
		return nil, err
	}
	signers, err := e.Signers()
	if err != nil {
		return nil, err
	}
	f, err := DecodeFile(e.Document)
	if err != nil {
		return nil, err
	}
	if f.Cluster != s.o.Cluster {
		return nil, fmt.Errorf("the trust file belongs to the cluster %s, and this node to %s", f.Cluster, s.o.Cluster)
	}
	roots := f
	if s.file != nil {
		switch sum := sha256.Sum256(e.Document); {
		case f.Version < s.file.Version:
			return nil, fmt.Errorf("%w: the file has version %d, %d is in force", ErrOlder, f.Version, s.file.Version)
		case f.Version == s.file.Version && sum != s.sum:
			return nil, fmt.Errorf("%w (%d)", ErrDisagree, s.file.Version)
		case f.Version == s.file.Version:
			return f, nil
		}
		roots = s.file
	}
	return f, roots.signedBy(signers, f.Version)
}

// signedBy returns an error unless enough roots are among the signers.
func (f *File) signedBy(signers []ID, version uint64) error {
	n := 0
	for i := range f.Roots {
		if slices.Contains(signers, f.Roots[i].Key.ID()) {
			n++
		}
	}
	if n < f.Threshold {
		return &SignaturesError{Version: version, Have: n, Want: f.Threshold}
	}
	return nil
}

// SignaturesError is the error for a trust file without enough signatures.
type SignaturesError struct {
	Version    uint64 // of the file
	Have, Want int    // signatures of root keys
}

// Error names both numbers and the remedy.
func (e *SignaturesError) Error() string {
	return fmt.Sprintf("the trust file is signed by %d of the %d root keys that are required; sign it with: "+
		"nearside trust sign -f FILE --root KEY", e.Have, e.Want)
}

// Accept returns the state with the trust file in a text, or an error if the file may not follow
// the one in force.
func (s *State) Accept(text []byte) (*State, error) {
	if s.damage != "" {
		return nil, errors.New(s.damage)
	}
	if s.file == nil && s.o.Anchored {
		return nil, errors.New(noAnchor)
	}
	f, err := s.Check(text)
	if err != nil {
		return nil, err
	}
	return s.with(f, text), nil
}

// Adopt returns the state with the trust file in a text that the operator of this node has set. It
// need not follow the one in force, but enough of the roots that it lists must have signed it.
func (s *State) Adopt(text []byte) (*State, error) {
	bare := New(s.o)
	f, err := bare.Check(text)
	if err != nil {
		return nil, err
	}
	out := s.with(f, text)
	out.damage = ""
	return out, nil
}

func (s *State) with(f *File, text []byte) *State {
	out := *s
	e, _ := ParseEnvelope(text) // the caller has parsed it
	out.file, out.text, out.sum = f, text, sha256.Sum256(e.Document)
	out.grants, out.revoked = map[ID]*grant{}, map[ID]*Revocation{}
	role := func(name string) *Role {
		i := slices.IndexFunc(f.Roles, func(r Role) bool { return r.Name == name })
		return &f.Roles[i] // DecodeFile has checked it
	}
	for _, k := range f.Keys {
		out.grants[k.Key.ID()] = &grant{k.Name, role(k.Role), k.NotBefore, k.NotAfter}
	}
	for _, n := range f.Nodes {
		name := "node " + n.Key.String()
		if n.Name != "" {
			name = "node " + n.Name
		}
		out.grants[n.Key] = &grant{name: name, role: role(n.Role)}
	}
	for i := range f.Revoked {
		out.revoked[f.Revoked[i].Key] = &f.Revoked[i]
	}
	return &out
}

// Damaged returns the state of a node whose trust file cannot be read: a file in force stays, and
// nothing new is permitted.
func (s *State) Damaged(reason string) *State {
	out := *s
	out.damage = reason
	return &out
}

// Configured returns the state with other options.
func (s *State) Configured(o Options) *State {
	out := *s
	out.o = o
	return &out
}

// Enrolled returns the state at a time with the enrollments in some records. It ignores records
// that are not in force. Of two enrollments with one name, the later one is valid, so a node that
// lost its key can return under its name.
func (s *State) Enrolled(records []*engine.Record, at time.Time) *State {
	out := *s
	out.now, out.enrolled = at, map[ID]*Enrollment{}
	named := map[string]*Enrollment{}
	records = slices.Clone(records)
	slices.SortFunc(records, func(a, b *engine.Record) int {
		switch v, w := a.Version(), b.Version(); {
		case v.Less(w):
			return -1
		case w.Less(v):
			return 1
		}
		return 0
	})
	for _, r := range records {
		if r.Key.Kind != KindEnrollment || r.Deleted || out.enrollment(r) != "" {
			continue
		}
		if e, err := DecodeEnrollment(r.Body); err == nil { // enrollment has decoded it
			if old := named[e.Name]; old != nil {
				delete(out.enrolled, old.Key)
			}
			out.enrolled[e.Key], named[e.Name] = e, e
		}
	}
	return &out
}

// Expires returns the next time at which an enrollment expires, or zero.
func (s *State) Expires() (at time.Time) {
	for _, e := range s.enrolled {
		if !e.NotAfter.IsZero() && e.NotAfter.After(s.now) && (at.IsZero() || e.NotAfter.Before(at)) {
			at = e.NotAfter
		}
	}
	return at
}

// File returns the trust file in force, or nil. Callers must not modify it.
func (s *State) File() *File { return s.file }

// Text returns the envelope of the trust file in force. Callers must not modify it.
func (s *State) Text() []byte { return s.text }

// Damage returns why the trust file of this node cannot be read, or "".
func (s *State) Damage() string { return s.damage }

// Anchored reports whether the first trust file of a peer is refused.
func (s *State) Anchored() bool { return s.o.Anchored }

// Mode returns the effective mode: the stricter one of the config and the trust file. Without a
// readable trust file it is never [ModeOff].
func (s *State) Mode() string {
	mode := Stricter(s.o.Mode, ModeOff)
	if s.file != nil {
		mode = Stricter(mode, s.file.Mode)
	}
	if s.damage != "" {
		mode = ModeEnforce
	}
	return mode
}

// Admit values of gossip.admit.
const (
	AdmitKey      = "key"
	AdmitEnrolled = "enrolled"
)

// Admit returns the effective value of gossip.admit.
func (s *State) Admit() string {
	switch {
	case s.o.Admit != "":
		return s.o.Admit
	case s.Mode() == ModeEnforce:
		return AdmitEnrolled
	}
	return AdmitKey
}

// Enrollment returns the valid enrollment of a node, or nil.
func (s *State) Enrollment(node engine.NodeID) *Enrollment {
	e := s.enrolled[ID(node)]
	if e == nil || e.expired(s.now) {
		return nil
	}
	return e
}

// Enrollments returns all enrollments, including expired ones, sorted by name.
func (s *State) Enrollments() (out []*Enrollment) {
	for _, e := range s.enrolled {
		out = append(out, e)
	}
	slices.SortFunc(out, func(a, b *Enrollment) int {
		if c := strings.Compare(a.Name, b.Name); c != 0 {
			return c
		}
		return bytes.Compare(a.Key[:], b.Key[:])
	})
	return out
}

// Member returns "" if a node may be a member of the pool, or the reason. name is the one that the
// node claims.
func (s *State) Member(node engine.NodeID, name string) string {
	if why := s.revokedKey(ID(node)); why != "" {
		return s.unlessListed(why)
	}
	if s.Admit() != AdmitEnrolled || node == s.o.Self {
		return ""
	}
	return s.admits(node, name)
}

// unlessListed returns a reason in [ModeEnforce], and else "".
func (s *State) unlessListed(why string) string {
	if s.Mode() == ModeEnforce {
		return why
	}
	return ""
}

// Role returns the role that the trust file gives to a key, or nil.
func (s *State) Role(id sign.ID) *Role {
	if g := s.grants[ID(id)]; g != nil {
		return g.role
	}
	return nil
}

// NameOf returns the name of a key in the trust file or the enrollments: "alice", "node web-1", or
// "root r1"; "" if it is unknown.
func (s *State) NameOf(id sign.ID) string {
	if g := s.grants[ID(id)]; g != nil {
		return g.name
	}
	if e := s.enrolled[ID(id)]; e != nil {
		return "node " + e.Name
	}
	if s.file != nil {
		if r := s.file.rootOf(ID(id)); r != nil {
			return "root " + r.Name
		}
	}
	return ""
}

// Revoked returns why a key is revoked, or "".
func (s *State) Revoked(id sign.ID) string { return s.revokedKey(ID(id)) }

func (s *State) revokedKey(id ID) string {
	if r := s.revoked[id]; r != nil {
		return fmt.Sprintf("the key %s is revoked since %s", id, r.Since.UTC().Format(time.RFC3339))
	}
	return ""
}

// covers returns "" if the role of a key allows an action, or the reason.
func (g *grant) covers(act access.Action) string {
	if g.role.covers(act) {
		return ""
	}
	return fmt.Sprintf("the role %s of %s does not allow: %s", g.role.Name, g.name, act)
}

// coversBody is covers with the features that the resource in a body uses. It decodes the body only
// if the role depends on that.
func (s *State) coversBody(g *grant, act access.Action, key resource.Key, body []byte) string {
	if s.o.Features != nil && len(body) > 0 {
		act.Features = access.AllFeatures
		if g.role.covers(act) {
			return ""
		}
		act.Features = s.o.Features(key, body)
	}
	return g.covers(act)
}
