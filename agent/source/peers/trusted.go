package peers

import (
	"cmp"
	"strings"
	"sync"

	"github.com/nearside-mesh/nearside/agent/compute/danger"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/trust"
	"github.com/nearside-mesh/nearside/agent/source/peers/policy"
	"github.com/nearside-mesh/nearside/gossip"
	"github.com/nearside-mesh/nearside/gossip/engine"
	"github.com/nearside-mesh/nearside/gossip/engine/sign"
)

// verdicts caches why records would not be in force in the mode enforce.
type verdicts struct {
	sync.Mutex
	state *trust.State
	of    map[*engine.Record]string
}

// TrustOptions are the keys of the config about trust.
type TrustOptions struct {
	Mode, File string // trust.mode and trust.file
	Admit      string // gossip.admit
}

// openPolicy loads the trust of this node from its state.
func (s *Source) openPolicy(saved []engine.Op) {
	var records []*engine.Record
	for _, op := range saved {
		if op.Bucket == engine.BucketRecords && op.Record != nil && trust.Reserved(op.Record.Key.Kind) {
			records = append(records, op.Record)
		}
	}
	t := s.o.Trust
	s.policy = policy.Open(policy.Options{Dir: s.o.State, File: t.File, Mode: t.Mode, Admit: t.Admit,
		Cluster: s.o.Cluster, Self: s.o.Self, Features: s.features, Now: s.o.Now}, records)
	s.searching.Store(s.policy.State().Admit() == trust.AdmitEnrolled)
	s.outside = map[engine.NodeID]map[engine.Key]string{}
}

// features returns the dangerous features of the resource in a body. A resource that this version
// cannot decode is not in force here, and needs none.
func (s *Source) features(_ resource.Key, body []byte) access.Features {
	r, err := s.o.Decode(body)
	if err != nil {
		return 0
	}
	return danger.Features(r)
}

// admit returns why a member may not be used, or "".
func (s *Source) admit(m gossip.Identity) string {
	state := s.policy.State()
	if m.Signed && s.searching.Load() {
		return state.Revoked(sign.ID(m.Node))
	}
	if !m.Signed && state.Admit() == trust.AdmitEnrolled && m.Node != s.o.Self {
		return "it has not proven its key, and only enrolled nodes are admitted; upgrade its agent"
	}
	return state.Member(m.Node, m.Name)
}

// takeTrustRecords applies the records about trust, and reports whether the trust has changed. The
// caller then applies the items of all nodes again.
func (s *Source) takeTrustRecords() bool {
	var records []*engine.Record
	for _, r := range s.node.Records() {
		if trust.Reserved(r.Key.Kind) {
			records = append(records, r)
		}
	}
	before := s.policy.State()
	if !s.policy.Take(records) {
		return false
	}
	s.logTrust(before)
	s.retrust()
	return true
}

// retrust makes the pool judge its members and entries again, because the trust has changed. With a
// damaged trust file, all that is in force stays.
func (s *Source) retrust() {
	state := s.policy.State()
	if state.Damage() != "" {
		return
	}
	for _, e := range state.Enrollments() {
		s.node.AssignName(e.Name, sign.ID(e.Key))
	}
	s.node.Reconsider()
}

// logTrust logs a change of the trust file.
func (s *Source) logTrust(before *trust.State) {
	state := s.policy.State()
	switch f := state.File(); {
	case f == before.File():
	case before.File() == nil:
		from, _ := s.policy.First()
		s.o.Log.Warn("this node has its first trust file, and accepts only files that its roots sign from now on",
			"version", f.Version, "mode", state.Mode(), "roots", rootNames(f), "from", from)
	default:
		s.o.Log.Info("the trust file has changed", "version", f.Version, "mode", state.Mode(), "roots", rootNames(f))
	}
}

// rootNames returns the names and fingerprints of the roots.
func rootNames(f *trust.File) string {
	var out []string
	for _, r := range f.Roots {
		out = append(out, r.Name+" "+r.Key.ID().String())
	}
	return strings.Join(out, ", ")
}

// ConfigureTrust applies changed keys of the config, and reads trust.file again.
func (s *Source) ConfigureTrust(mode, admit string) {
	before := s.policy.State()
	s.policy.Configure(mode, admit)
	s.logTrust(before)
	s.applyTrust()
}

// AdoptTrust makes a trust file the first one of this node.
func (s *Source) AdoptTrust(text []byte) error {
	before := s.policy.State()
	if err := s.policy.Adopt(text); err != nil {
		return err
	}
	s.logTrust(before)
	s.applyTrust()
	return nil
}

// findEnrolled decides whether this node searches for enrolled members: while it uses none, it
// exchanges messages with all members that have proven their keys, because one of them may have the
// enrollments. Their data are judged as always.
func (s *Source) findEnrolled() {
	state := s.policy.State()
	search := state.Admit() == trust.AdmitEnrolled
	for _, m := range s.node.Members() {
		if !m.Self && m.State == gossip.StateAlive && state.Enrollment(m.Node) != nil {
			search = false
		}
	}
	if s.searching.Swap(search) != search && state.Damage() == "" {
		s.node.Reconsider()
	}
}

// expireTrust ends enrollments whose time has come.
func (s *Source) expireTrust() {
	if s.policy.Tick() {
		s.applyTrust()
	}
}

// applyTrust applies a changed trust to the pool and the store.
func (s *Source) applyTrust() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retrust()
	s.retakeAll(map[engine.NodeID]bool{}, map[engine.NodeID]bool{})
}

// retakeAll applies the items of all nodes and directories again, including those of changed ones
// that are gone.
func (s *Source) retakeAll(nodes, dirs map[engine.NodeID]bool) {
	all := s.node.Owners()
	for i := range all {
		nodes[all[i].Node] = true
	}
	for _, id := range s.node.Directories() {
		dirs[id] = true
	}
	s.takeOwned(all, nodes, false)
	s.takeTrust(all, nodes)
	s.takeDirectories(dirs, true, false)
}

// exclude reports whether an item of a node or directory is not in force, and lists why: its
// enrollment or role does not allow it. In the mode warn it only lists the item. The caller holds
// mu.
func (s *Source) exclude(of engine.NodeID, key engine.Key, why string) bool {
	mode := s.policy.State().Mode()
	if why == "" || mode == trust.ModeOff {
		return false
	}
	if s.outside[of] == nil {
		s.outside[of] = map[engine.Key]string{}
	}
	s.outside[of][key] = why
	return mode == trust.ModeEnforce
}

// readmit forgets which items of a node or directory were excluded, before they are judged again.
func (s *Source) readmit(of engine.NodeID) { delete(s.outside, of) }

// beyondEnrollment returns why the enrollment of a node does not allow a resource, or "". Without
// an enrollment, the manifest of the node is judged as a whole.
func (s *Source) beyondEnrollment(node engine.NodeID, r *resource.Resource) string {
	e := s.policy.State().Enrollment(node)
	if e == nil {
		return ""
	}
	if why := e.AllowsMesh(r.Key.Mesh); why != "" {
		return why
	}
	switch spec := r.Spec.(type) {
	case *resource.Dataplane:
		return dataplaneBeyond(e, r, spec)
	case *resource.ExternalService:
		return e.AllowsTags(spec.Tags)
	case *resource.ZoneIngress:
		return cmp.Or(e.AllowsZone(spec.Zone), e.AllowsAllServices())
	case *resource.ZoneEgress:
		return cmp.Or(e.AllowsZone(spec.Zone), e.AllowsAllServices())
	}
	return ""
}

func dataplaneBeyond(e *trust.Enrollment, r *resource.Resource, spec *resource.Dataplane) string {
	n := &spec.Networking
	for i := range n.Inbound {
		if why := e.AllowsTags(n.Inbound[i].Tags); why != "" {
			return why
		}
	}
	if n.Gateway != nil {
		if why := e.AllowsTags(n.Gateway.Tags); why != "" {
			return why
		}
	}
	labels := map[string]string{}
	for key, value := range r.Labels {
		if !ownLabel(key) {
			labels[key] = value
		}
	}
	return e.AllowsTags(labels)
}

// ownLabel reports whether a label has a meaning that does not depend on who set it: it selects no
// policy and no service that is not limited otherwise.
func ownLabel(key string) bool {
	switch key {
	case "kuma.io/mesh", "kuma.io/origin", "kuma.io/env", "kuma.io/display-name", "kuma.io/proxy-type":
		return true
	}
	return strings.HasPrefix(key, "nearside.io/")
}
