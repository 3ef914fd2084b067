package trust

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/agent/base/strict"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/gossip/engine"
	"github.com/nearside-mesh/nearside/gossip/engine/sign"
)

// Modes of trust, from the least to the most strict.
const (
	ModeOff     = "off"     // nothing is judged
	ModeWarn    = "warn"    // entries that are not permitted are listed, and stay in force
	ModeEnforce = "enforce" // entries that are not permitted are not in force
)

// Modes lists the modes from the least to the most strict.
var Modes = [...]string{ModeOff, ModeWarn, ModeEnforce}

// Stricter returns the stricter one of two modes. "" is [ModeOff], and an unknown mode counts as
// [ModeEnforce].
func Stricter(a, b string) string { return Modes[max(rank(a), rank(b))] }

func rank(mode string) int {
	if i := slices.Index(Modes[:], mode); i >= 0 {
		return i
	}
	if mode == "" {
		return 0
	}
	return len(Modes) - 1
}

// FeatureEnroll is the feature of roles whose keys may sign enrollments of nodes. Unlike the
// features of resources, * as kinds does not include it.
const FeatureEnroll = "enroll"

// File is the content of a trust file.
type File struct {
	Cluster   string       `json:"cluster"`   // gossip.cluster of the nodes
	Version   uint64       `json:"version"`   // only rises
	Mode      string       `json:"mode"`      // [ModeOff], [ModeWarn], or [ModeEnforce]
	Threshold int          `json:"threshold"` // number of roots that must sign the next file
	Roots     []Root       `json:"roots"`
	Roles     []Role       `json:"roles,omitempty"`
	Keys      []Key        `json:"keys,omitempty"`
	Nodes     []Node       `json:"nodes,omitempty"`
	Revoked   []Revocation `json:"revoked,omitempty"`
}

// Root is a key that signs trust files, enrollments, and heal statements. It may not sign
// resources.
type Root struct {
	Name string    `json:"name"`
	Key  PublicKey `json:"key"`
}

// Role is a named permission. Keys and nodes refer to it.
type Role struct {
	Name string `json:"name"`
	access.Allow
}

// enrolls reports whether keys of the role may enroll nodes.
func (r *Role) enrolls() bool { return slices.Contains(r.Features, FeatureEnroll) }

// covers reports whether the role allows an action.
func (r *Role) covers(act access.Action) bool {
	a := r.Allow
	a.Features = slices.DeleteFunc(slices.Clone(a.Features), func(f string) bool { return f == FeatureEnroll })
	return a.Covers(act)
}

// Key is the key of an operator. Its records must be dated from NotBefore to NotAfter, by the clock
// of the record. Zero times set no limit.
type Key struct {
	Name      string    `json:"name"`
	Key       PublicKey `json:"key"`
	Role      string    `json:"role"`
	NotBefore time.Time `json:"notBefore,omitzero"`
	NotAfter  time.Time `json:"notAfter,omitzero"`
}

// Node grants a role to the key of a node. Records that users of the API of this node write, and
// directories that the node publishes, need it.
type Node struct {
	Name string `json:"name,omitempty"` // for display
	Key  ID     `json:"key"`            // ID of the node
	Role string `json:"role"`
}

// Revocation ends a key. Records of the key in Keep stay in force. If Keep is absent, those dated
// before Since stay; the thief of a key can date a record back, so list the good ones in Keep.
type Revocation struct {
	Name  string    `json:"name,omitempty"` // for display
	Key   ID        `json:"key"`
	Since time.Time `json:"since"`
	Keep  *[]string `json:"keep,omitempty"` // of [RecordID]; empty: none
}

// ID is the fingerprint of a key. The ID of a node is the fingerprint of its key.
type ID sign.ID

// String returns 32 hexadecimal digits.
func (id ID) String() string { return engine.NodeID(id).String() }

// MarshalText implements [encoding.TextMarshaler].
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (id *ID) UnmarshalText(b []byte) error {
	n, err := engine.ParseNodeID(string(b))
	if err != nil {
		return fmt.Errorf("the fingerprint of a key has 32 hexadecimal digits; see nearside keys list and nearside " +
			"members -o json")
	}
	*id = ID(n)
	return nil
}

// RecordID returns the name of a record in [Revocation.Keep]. Unlike [engine.Record.ID], it has the
// complete digest, so the name fits no other record.
func RecordID(r *engine.Record) string {
	v := r.Version()
	return fmt.Sprintf("%016x-%s", v.Order, v.Digest)
}

// Limits of a trust file.
const (
	MaxFile  = 48 << 10 // bytes of the envelope
	maxItems = 4096     // of each list
	maxRoots = 64
	maxName  = 253
)

// DecodeFile decodes and checks the document of a trust file. The error lists all faults, with line
// and field.
func DecodeFile(document []byte) (*File, error) {
	f := &File{}
	root, faults := decode(document, f)
	if len(faults) == 0 {
		faults = f.check()
	}
	return f, located(root, faults)
}

// decode decodes a document strictly.
func decode(document []byte, into any) (*strict.Node, strict.Faults) {
	lim := strict.Limits{FileBytes: MaxFile, DocumentBytes: MaxFile, Depth: 8, Nodes: 1 << 19, Documents: 1}.WithDefaults()
	root, fault := strict.One(document, lim)
	switch {
	case fault != nil:
		return nil, strict.Faults{*fault}
	case root == nil:
		return nil, strict.Faults{{Reason: "the document is empty"}}
	}
	d := strict.New(lim, strict.Types{}, strict.Hooks{})
	d.NoNull = true
	d.Check(root)
	d.Decode(root, into)
	return root, d.Finish()
}

// located returns the faults with their lines as an error, or nil.
func located(root *strict.Node, faults strict.Faults) error {
	for i := range faults {
		if faults[i].Line == 0 && root != nil && faults[i].Field != "" {
			faults[i].Line = root.LineOf(faults[i].Field)
		}
	}
	return faults.Err()
}

// check returns the faults of the content.
func (f *File) check() (out strict.Faults) {
	fault := func(field, format string, args ...any) {
		out = append(out, strict.Fault{Field: field, Reason: fmt.Sprintf(format, args...)})
	}
	switch {
	case f.Cluster == "":
		fault("cluster", "is missing; give gossip.cluster of the nodes")
	case len(f.Cluster) > 63:
		fault("cluster", "has %d bytes, at most 63 are allowed", len(f.Cluster))
	}
	if f.Version == 0 {
		fault("version", "is missing; the first trust file has version 1, and each later one a higher version")
	}
	if !slices.Contains(Modes[:], f.Mode) {
		fault("mode", "%.32q is not a mode; use one of %s", f.Mode, strings.Join(Modes[:], ", "))
	}
	if n := len(f.Roots); n == 0 || n > maxRoots {
		fault("roots", "has %d keys; give 1 to %d", n, maxRoots)
	}
	if f.Threshold < 1 || f.Threshold > len(f.Roots) {
		fault("threshold", "is %d; give 1 to the number of roots, %d", f.Threshold, len(f.Roots))
	}
	for _, l := range []struct {
		field string
		n     int
	}{{"roles", len(f.Roles)}, {"keys", len(f.Keys)}, {"nodes", len(f.Nodes)}, {"revoked", len(f.Revoked)}} {
		if l.n > maxItems {
			fault(l.field, "has %d items, at most %d are allowed", l.n, maxItems)
		}
	}
	f.checkKeys(fault)
	f.checkRoles(fault)
	return out
}

// checkKeys checks the lists of keys. A key has one purpose.
func (f *File) checkKeys(fault func(field, format string, args ...any)) {
	used := map[ID]string{}
	use := func(field string, id ID) {
		if other := used[id]; other != "" {
			fault(field, "is also the key of %s; a key has one purpose, make another key", other)
		}
		used[id] = field
	}
	names := map[string]string{}
	name := func(field, name string) {
		switch other := names[name]; {
		case name == "" || len(name) > maxName || strings.ContainsFunc(name, unprintable):
			fault(field, "%.64q is not a name; use 1 to %d printable characters", name, maxName)
		case other != "":
			fault(field, "%.64q is also the name in %s; use another one", name, other)
		}
		names[name] = field
	}
	for i, r := range f.Roots {
		at := fmt.Sprintf("roots[%d].", i)
		name(at+"name", r.Name)
		if r.Key == nil {
			fault(at+"key", "is missing; give the public key")
		} else {
			use(at+"key", r.Key.ID())
		}
	}
	for i, k := range f.Keys {
		at := fmt.Sprintf("keys[%d].", i)
		name(at+"name", k.Name)
		if k.Key == nil {
			fault(at+"key", "is missing; give the public key")
		} else {
			use(at+"key", k.Key.ID())
		}
		if !k.NotAfter.IsZero() && !k.NotBefore.Before(k.NotAfter) {
			fault(at+"notAfter", "is not after notBefore")
		}
	}
	for i, n := range f.Nodes {
		use(fmt.Sprintf("nodes[%d].key", i), n.Key)
	}
	seen := map[ID]bool{}
	for i, r := range f.Revoked {
		at := fmt.Sprintf("revoked[%d].", i)
		if seen[r.Key] {
			fault(at+"key", "%s is revoked twice; remove one item", r.Key)
		}
		if seen[r.Key] = true; r.Since.IsZero() {
			fault(at+"since", "is missing; give the time from which the key counts as stolen")
		}
		if strings.HasPrefix(used[r.Key], "roots[") {
			fault(at+"key", "%s is also in %s; remove it there", r.Key, used[r.Key])
		}
	}
}

// checkRoles checks the roles, and the references to them.
func (f *File) checkRoles(fault func(field, format string, args ...any)) {
	roles := map[string]bool{}
	for i, r := range f.Roles {
		at := fmt.Sprintf("roles[%d].", i)
		switch {
		case r.Name == "" || len(r.Name) > 63 || strings.ContainsFunc(r.Name, unprintable):
			fault(at+"name", "%.64q is not a name; use 1 to 63 printable characters", r.Name)
		case roles[r.Name]:
			fault(at+"name", "%.64q is already the name of another role; role names must be unique", r.Name)
		}
		roles[r.Name] = true
		if len(r.Kinds) == 0 {
			fault(at+"kinds", "is empty; list kinds of resources, or * for all")
		}
		if len(r.Verbs) == 0 {
			fault(at+"verbs", "is empty; use %s, or * for all", strings.Join(writeVerbs[:], ", "))
		}
		for _, v := range r.Verbs {
			if v != "*" && !slices.Contains(access.Verbs[:], v) {
				fault(at+"verbs", "%.64q is not a verb; use one of %s, *", v, strings.Join(access.Verbs[:], ", "))
			}
		}
	}
	for i, r := range f.Roles {
		for _, name := range r.Features {
			if _, err := access.ParseFeatures(name); err != nil && name != FeatureEnroll {
				fault(fmt.Sprintf("roles[%d].features", i), "%.64q is not a feature; use one of %s, %s", name,
					strings.Join(access.FeatureNames[:], ", "), FeatureEnroll)
			}
		}
	}
	refer := func(field, role string) {
		if !roles[role] {
			fault(field, "%.64q is not the name of a role in roles", role)
		}
	}
	for i, k := range f.Keys {
		refer(fmt.Sprintf("keys[%d].role", i), k.Role)
	}
	for i, n := range f.Nodes {
		refer(fmt.Sprintf("nodes[%d].role", i), n.Role)
	}
}

var writeVerbs = [...]string{access.VerbCreate, access.VerbUpdate, access.VerbDelete}

func unprintable(r rune) bool { return r < ' ' || r == 0x7f || r == '\ufffd' }

// rootOf returns the root with an ID, or nil.
func (f *File) rootOf(id ID) *Root {
	for i := range f.Roots {
		if f.Roots[i].Key.ID() == id {
			return &f.Roots[i]
		}
	}
	return nil
}
