package peers

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/model/trust"
	"github.com/nearside-mesh/nearside/agent/source/directory"
	"github.com/nearside-mesh/nearside/gossip"
	"github.com/nearside-mesh/nearside/gossip/engine"
	"github.com/nearside-mesh/nearside/gossip/engine/sign"
)

// The pool owns the resources of a published directory. Each node that has the directory and could
// publish it announces that with an item of kindDirectory, which is named by the ID of the
// directory. One of these nodes publishes the resources, with an item of the same kind about their
// version. The resources stay in force while no node has the directory.
const kindDirectory = trust.KindDirectory

// directoryBody is the body of an item of kindDirectory.
type directoryBody struct {
	Node    string    `json:"node,omitempty"` // ID of the node that published it; empty in announcements
	Commit  string    `json:"commit,omitempty"`
	Author  string    `json:"author,omitempty"`
	Digest  string    `json:"digest"`  // of the resources
	Changed time.Time `json:"changed"` // when this content was written to the node
}

// bodyOf returns the announcement of this node's content.
func bodyOf(p *directory.Published) directoryBody {
	return directoryBody{Commit: p.Commit, Author: p.Author, Digest: hex.EncodeToString(p.Digest[:16]),
		Changed: p.Time.UTC()}
}

// item returns the item with a body. Encoding never fails, and its length is bounded.
func (b directoryBody) item(id string) engine.OwnItem {
	body, _ := json.Marshal(b)
	return engine.OwnItem{Key: engine.Key{Kind: kindDirectory, Name: id}, Body: body}
}

// sameVersion reports whether two bodies describe the same version of a directory.
func (b directoryBody) sameVersion(o directoryBody) bool {
	return b.Digest == o.Digest && b.Commit == o.Commit && b.Author == o.Author
}

// directoryID returns the ID of a directory's owner in the engine.
func directoryID(cluster, id string) engine.NodeID {
	sum := sha256.Sum256(fmt.Appendf(nil, "nearside directory %q %q", cluster, id))
	return engine.NodeID(sum[:16])
}

// candidate is a live node that could publish a directory.
type candidate struct {
	node engine.NodeID
	directoryBody
}

// publisherOf returns the node that has to publish a directory, or zero. It is the node that
// published the current version, if that is a candidate. Otherwise it is the one with the best rank
// among those with the published content, or if there are none, among those with the latest content
// that is later than the published one. All nodes with the same information return the same node.
func publisherOf(dir engine.NodeID, published *directoryBody, list []candidate) (best engine.NodeID) {
	var digest string
	var latest time.Time
	if published != nil {
		digest, latest = published.Digest, published.Changed
		for _, c := range list {
			if c.node.String() == published.Node {
				return c.node
			}
		}
	}
	has := func(c candidate) bool { return c.Digest == digest }
	if !slices.ContainsFunc(list, has) {
		for _, c := range list {
			if d := c.Changed.Compare(latest); d > 0 || d == 0 && published == nil && c.Digest > digest {
				digest, latest = c.Digest, c.Changed
			}
		}
	}
	var eligible []engine.NodeID
	for _, c := range list {
		if has(c) {
			eligible = append(eligible, c.node)
		}
	}
	for _, id := range eligible {
		if rank(id, dir, eligible) == 0 {
			best = id
		}
	}
	return best
}

// directories is the state of the published directories. Its fields, except all, are guarded by the
// mu of the source.
type directories struct {
	begun    time.Time
	local    []directory.Published            // this node's content at the last tick
	sets     map[engine.NodeID]*publishedSet  // by the ID of the owner
	claims   map[resource.Key][]engine.NodeID // the sets with a key, sorted by their directories' IDs
	waiting  map[resource.Key]string          // resources not in force here, and why
	nodes    map[engine.NodeID]map[string]directoryBody
	takeover map[string]time.Time // since when this node has to take over, by the ID of the directory
	failed   map[string]string    // why the last publication failed, by the ID of the directory
	seen     *store.Snapshot      // content that resettle has compared
	all      atomic.Pointer[map[string]api.Publication]
}

// publishedSet is the published version of a directory.
type publishedSet struct {
	id        string
	body      directoryBody
	signer    sign.ID // key of the node that published it, or zero
	resources map[resource.Key]*resource.Resource
	encoded   map[engine.Key][]byte // the bodies of resources
}

func (d *directories) open() {
	d.begun = time.Now()
	d.sets, d.claims = map[engine.NodeID]*publishedSet{}, map[resource.Key][]engine.NodeID{}
	d.waiting, d.nodes = map[resource.Key]string{}, map[engine.NodeID]map[string]directoryBody{}
	d.takeover, d.failed = map[string]time.Time{}, map[string]string{}
	d.all.Store(&map[string]api.Publication{})
}

// Times of publication.
const (
	quietTime    = time.Second      // content must not change for this time before it is published
	takeoverTime = 3 * time.Second  // another node takes over if the publisher is lost for this time
	agreeTime    = 30 * time.Second // maximum time to wait for agreement with a live peer
)

// Publication returns the published version of a directory, or zero.
func (s *Source) Publication(id string) api.Publication { return (*s.dirs.all.Load())[id] }

// InPool reports whether the pool has a version of a directory.
func (s *Source) InPool(id string) bool {
	_, ok := (*s.dirs.all.Load())[id]
	return ok
}

// announce updates this node's content, and reports whether its announcements have changed.
func (s *Source) announce(local []directory.Published) (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.announcements()
	s.dirs.local = local
	return !slices.EqualFunc(before, s.announcements(), func(a, b engine.OwnItem) bool {
		return a.Key == b.Key && string(a.Body) == string(b.Body)
	})
}

// announcements returns the items with the directories that this node could publish, sorted.
func (s *Source) announcements() (out []engine.OwnItem) {
	for i := range s.dirs.local {
		if p := &s.dirs.local[i]; p.Fault == "" {
			out = append(out, bodyOf(p).item(p.ID))
		}
	}
	slices.SortFunc(out, func(a, b engine.OwnItem) int { return cmp.Compare(a.Key.Name, b.Key.Name) })
	return out
}

// takeAnnouncements reads the directories that another node could publish.
func (s *Source) takeAnnouncements(node engine.NodeID, items []engine.OwnItem) {
	out := map[string]directoryBody{}
	for _, item := range items {
		var b directoryBody
		if item.Key.Kind == kindDirectory && json.Unmarshal(item.Body, &b) == nil {
			out[item.Key.Name] = b
		}
	}
	if s.dirs.nodes[node] = out; len(out) == 0 {
		delete(s.dirs.nodes, node)
	}
}

// candidates returns the live nodes that could publish a directory, sorted.
func (s *Source) candidates(id string) (out []candidate) {
	for _, m := range s.node.Members() {
		if b, ok := s.dirs.nodes[m.Node][id]; ok && !m.Self && m.State == gossip.StateAlive {
			out = append(out, candidate{m.Node, b})
		}
	}
	for i := range s.dirs.local {
		if p := &s.dirs.local[i]; p.ID == id && p.Fault == "" {
			out = append(out, candidate{s.node.Self(), bodyOf(p)})
		}
	}
	slices.SortFunc(out, func(a, b candidate) int { return compareNodes(a.node, b.node) })
	return slices.CompactFunc(out, func(a, b candidate) bool { return a.node == b.node })
}

// publishDirectories publishes this node's directories if it is their publisher. It reads files.
func (s *Source) publishDirectories() {
	if s.o.Directories == nil {
		return
	}
	local := s.o.Directories()
	if s.announce(local) {
		s.publishOwn()
	}
	for i := range local {
		s.publishDirectory(&local[i])
	}
}

func (s *Source) publishDirectory(p *directory.Published) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.duty(p) {
		return
	}
	owner, body := directoryID(s.o.Cluster, p.ID), bodyOf(p)
	body.Node = s.node.Self().String()
	items := []engine.OwnItem{body.item(p.ID)}
	for _, r := range p.Resources {
		b, err := resource.Marshal(r)
		if err != nil {
			s.failPublication(p, fmt.Errorf("%s: %w", r.Key, err))
			return
		}
		items = append(items, engine.OwnItem{Key: engine.Key(r.Key), Body: b})
	}
	err := s.node.SetDirectory(engine.Own{Owner: owner, Name: p.ID, Detail: p.Commit, Items: items})
	if err != nil {
		s.failPublication(p, err)
		return
	}
	delete(s.dirs.failed, p.ID)
	delete(s.dirs.takeover, p.ID)
	s.o.Log.Info("directory published", "directory", p.ID, "path", p.Path, "resources", len(p.Resources),
		"commit", p.Commit)
}

// duty reports whether this node has to publish its content of a directory now.
func (s *Source) duty(p *directory.Published) bool {
	d := &s.dirs
	waited, waits := d.takeover[p.ID]
	delete(d.takeover, p.ID)
	if s.left || p.Fault != "" || p.Busy || time.Since(p.Since) < quietTime {
		return false
	}
	owner := directoryID(s.o.Cluster, p.ID)
	var current *directoryBody
	if set := d.sets[owner]; set != nil {
		current = &set.body
	}
	ours := current != nil && current.Node == s.node.Self().String()
	switch {
	case !ours && !s.knowsPool():
		return false
	case publisherOf(owner, current, s.candidates(p.ID)) != s.node.Self():
		delete(d.failed, p.ID)
		return false
	case current == nil:
		return true
	case ours:
		return !current.sameVersion(bodyOf(p))
	case !waits:
		waited = time.Now()
	}
	d.takeover[p.ID] = waited
	return time.Since(waited) >= takeoverTime
}

// knowsPool reports whether this node knows the published directories of the pool. Until then, it
// does not publish, so that its files do not replace later ones.
func (s *Source) knowsPool() bool {
	if s.hasAgreed() {
		return true
	}
	members := s.node.Members()
	if len(members) <= 1 {
		return len(s.o.Join) == 0
	}
	return time.Since(s.dirs.begun) >= agreeTime && slices.ContainsFunc(members, func(m gossip.Member) bool {
		return !m.Self && m.State == gossip.StateAlive
	})
}

// failPublication records why a directory cannot be published.
func (s *Source) failPublication(p *directory.Published, err error) {
	if s.dirs.failed[p.ID] != err.Error() {
		s.o.Log.Error("cannot publish a directory; its previous version stays in force", "directory", p.ID, "error", err)
	}
	s.dirs.failed[p.ID] = err.Error()
}

// forgetDirectory deletes the resources of a published directory, unless a live node has it.
func (s *Source) forgetDirectory(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	owner := directoryID(s.o.Cluster, id)
	if s.dirs.sets[owner] == nil {
		return errNoNode
	}
	if live := s.candidates(id); len(live) > 0 {
		node := s.writers()[[8]byte(live[0].node[:8])]
		return fmt.Errorf("node %s has the directory %s and would publish it again; remove the directory from "+
			"resources.dir there first, and restart the agent", node, id)
	}
	s.node.Forget(owner)
	return nil
}
