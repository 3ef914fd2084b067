package peers

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/gossip/engine"
)

// takeDirectories applies changed directories to the store, or all directories at the start. Its
// cost depends on the number of their resources; only changed ones are decoded. nodes reports that
// names of nodes may have changed.
func (s *Source) takeDirectories(changed map[engine.NodeID]bool, nodes, first bool) {
	d := &s.dirs
	keys := map[resource.Key]bool{}
	if first {
		for _, id := range s.node.Directories() {
			changed[id] = true
		}
		for _, rec := range s.o.Store.Snapshot().BySource(store.SourcePublished) {
			keys[rec.Key] = true
		}
	}
	if len(changed) == 0 && len(keys) == 0 {
		if nodes && len(d.sets) > 0 {
			s.describeDirectories()
		}
		return
	}
	for id := range changed {
		old, next := d.sets[id], s.readDirectory(id)
		if old != nil {
			for key := range old.resources {
				keys[key] = true
				d.claims[key] = slices.DeleteFunc(d.claims[key], func(x engine.NodeID) bool { return x == id })
			}
		}
		if d.sets[id] = next; next == nil {
			delete(d.sets, id)
			continue
		}
		for key := range next.resources {
			keys[key] = true
			d.claims[key] = append(d.claims[key], id)
			slices.SortFunc(d.claims[key], func(a, b engine.NodeID) int { return cmp.Compare(d.sets[a].id, d.sets[b].id) })
		}
	}
	s.describeDirectories()
	if len(s.o.Published) > 0 {
		for _, rec := range s.o.Store.Snapshot().BySource(store.SourceFile) {
			if s.handedOver(rec.Source) {
				keys[rec.Key] = true
			}
		}
	}
	s.settlePublished(keys)
}

// readDirectory reads the published version of a directory, or nil.
func (s *Source) readDirectory(owner engine.NodeID) *publishedSet {
	d, ok := s.node.Directory(owner)
	if !ok {
		return nil
	}
	if directoryID(s.o.Cluster, d.Name) != owner {
		s.o.Log.Warn("a published directory is refused: its name does not match its id", "directory", d.Name)
		return nil
	}
	s.readmit(owner)
	old := s.dirs.sets[owner]
	if old == nil {
		old = &publishedSet{}
	}
	set := &publishedSet{id: d.Name, signer: d.Signer, resources: map[resource.Key]*resource.Resource{},
		encoded: map[engine.Key][]byte{}}
	for _, item := range d.Items {
		key := resource.Key(item.Key)
		var err error
		switch {
		case key.Kind == kindDirectory && key.Name == d.Name:
			err = json.Unmarshal(item.Body, &set.body)
		case ofNode(key.Kind):
			err = fmt.Errorf("a %s belongs to a node and cannot be published", key.Kind)
		default:
			r := old.resources[key]
			if r == nil || !bytes.Equal(old.encoded[item.Key], item.Body) {
				if r, err = s.o.Decode(item.Body); err == nil && r.Key != key {
					err = fmt.Errorf("it contains %s", r.Key)
				}
			}
			if err == nil && s.exclude(owner, item.Key, s.policy.State().ExplainItem(d.Signer, key, item.Body)) {
				continue
			}
			if err == nil {
				set.resources[key], set.encoded[item.Key] = r, item.Body
			}
		}
		if err != nil {
			s.o.Log.Warn("an item of a published directory is refused", "directory", d.Name, "resource", key, "error", err)
		}
	}
	return set
}

// describeDirectories updates the result of Publication.
func (s *Source) describeDirectories() {
	writers, all := s.writers(), map[string]api.Publication{}
	for _, set := range s.dirs.sets {
		node := set.body.Node
		if id, err := engine.ParseNodeID(node); err == nil {
			node = cmp.Or(writers[[8]byte(id[:8])], node)
		}
		all[set.id] = api.Publication{Node: node, Commit: set.body.Commit, Author: set.body.Author}
	}
	s.dirs.all.Store(&all)
}

// handedOver reports whether a file is in a directory of this node whose resources the pool owns.
func (s *Source) handedOver(src store.Source) bool {
	id, ok := s.o.Published[filepath.Dir(src.Detail)]
	return ok && src.Kind == store.SourceFile && s.InPool(id)
}

// settlePublished applies the resources of published directories to the store, for some keys. If
// several directories have a key, the one with the lowest ID wins. Operators' resources take
// precedence on all nodes, and files on theirs.
func (s *Source) settlePublished(keys map[resource.Key]bool) {
	d, snap := &s.dirs, s.o.Store.Snapshot()
	var puts, deletes, files []store.Op
	for _, key := range slices.SortedFunc(maps.Keys(keys), resource.Key.Compare) {
		delete(d.waiting, key)
		have, known := snap.Get(key)
		handed := known && s.handedOver(have.Source)
		claims := d.claims[key]
		if len(claims) == 0 {
			delete(d.claims, key)
		}
		version := s.o.Store.Version(key)
		if len(claims) == 0 || version != nil && !version.Deleted {
			switch {
			case handed:
				files = append(files, store.Op{Delete: key, Source: have.Source})
			case known && have.Source.Kind == store.SourcePublished:
				deletes = append(deletes, store.Op{Delete: key, Source: have.Source})
			}
		}
		if len(claims) == 0 {
			continue
		}
		set := d.sets[claims[0]]
		from, r := store.Source{Kind: store.SourcePublished, Detail: set.id}, set.resources[key]
		switch {
		case version != nil && !version.Deleted:
			d.waiting[key] = "an operator wrote it over the API, which takes precedence; delete it there to use that of the " +
				"directory " + set.id
			continue
		case known && !handed && have.Source.Kind != store.SourcePublished:
			d.waiting[key] = fmt.Sprintf("this node has it from %s, which takes precedence here", have.Source)
			continue
		case len(claims) > 1:
			d.waiting[key] = fmt.Sprintf("the directories %s and %s both contain it; that of %[1]s is used", set.id,
				d.sets[claims[1]].id)
		}
		if !known || have.Digest != r.Digest || have.Source != from || have.Signer != set.signer {
			puts = append(puts, store.Op{Put: r, Source: from, Signer: set.signer,
				Author: cmp.Or(set.body.Author, s.Publication(set.id).Node)})
		}
	}
	s.apply(store.SourcePublished, puts)
	s.apply(store.SourcePublished, deletes)
	s.apply(store.SourceFile, files)
}

// resettle applies published resources again whose content in the store has changed since the last
// call, such as those that a file no longer shadows.
func (s *Source) resettle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	d, snap := &s.dirs, s.o.Store.Snapshot()
	if len(d.sets) == 0 {
		d.seen = snap
		return
	}
	keys := map[resource.Key]bool{}
	for _, key := range snap.Diff(d.seen) {
		if rec, ok := snap.Get(key); len(d.claims[key]) > 0 || ok && s.handedOver(rec.Source) {
			keys[key] = true
		}
	}
	d.seen = snap
	s.settlePublished(keys)
}
