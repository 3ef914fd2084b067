package peers

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/gossip/engine"
)

// Resources of files are not replicated, so files that differ between nodes would go unnoticed.
// Each node publishes a digest of each of its file resources in items of kindFiles. Equal files
// give equal bodies, which the engine stores once for all nodes. A key selects its item by hash, so
// a changed file changes one item.
const (
	kindFiles = "Files"

	maxFilesBody  = 12 << 10 // bytes of one item
	maxFilesItems = 256
	digestBytes   = 8

	// maxFileDiffs limits the listed differences of one node.
	maxFileDiffs = 20
)

// fileDigests are the file resources of this node and their differences to other nodes. The mu of
// the source guards them.
type fileDigests struct {
	digests map[resource.Key]string
	changed bool              // digests differ from own
	own     map[string][]byte // published bodies by item name; nil: not known yet
	large   bool              // the file resources exceed maxFilesItems and are not compared
	differs map[engine.NodeID]*api.MemberFiles
}

func (f *fileDigests) open() {
	f.digests, f.changed = map[resource.Key]string{}, true
	f.differs = map[engine.NodeID]*api.MemberFiles{}
}

// set updates the digest of a resource. rec is zero if the resource does not exist.
func (f *fileDigests) set(key resource.Key, rec *store.Record) {
	digest := ""
	if rec.Source.Kind == store.SourceFile && !ofNode(key.Kind) {
		digest = hex.EncodeToString(rec.Digest[:digestBytes])
	}
	if f.digests[key] == digest {
		return
	}
	if f.changed = true; digest == "" {
		delete(f.digests, key)
		return
	}
	f.digests[key] = digest
}

// filesOwn returns the items with the digests of this node's file resources, sorted. If they have
// changed, it compares all nodes again.
func (s *Source) filesOwn() (out []engine.OwnItem) {
	f := &s.files
	if f.changed {
		f.own, f.large = filesBodies(f.digests)
		f.changed = false
		clear(f.differs)
		for _, o := range s.node.Owned() {
			s.takeFiles(o.Node, o.Items)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f.own)) {
		out = append(out, engine.OwnItem{Key: engine.Key{Kind: kindFiles, Name: name}, Body: f.own[name]})
	}
	return out
}

// filesBodies returns the bodies of the fewest items, a power of two, of which none is too large.
// There is always one, so that a node without files differs from a node that publishes nothing.
func filesBodies(digests map[resource.Key]string) (out map[string][]byte, large bool) {
	size := 0 // at least
	for k, d := range digests {
		size += len(fileKey(k)) + len(d)
	}
	for n := 1; n <= maxFilesItems; n *= 2 {
		if size > n*maxFilesBody {
			continue
		}
		items := make([]map[string]string, n)
		for i := range items {
			items[i] = map[string]string{}
		}
		for k, d := range digests {
			name := fileKey(k)
			h := fnv.New32a()
			_, _ = h.Write([]byte(name))
			items[h.Sum32()%uint32(n)][name] = d // #nosec G115 -- n is at most maxFilesItems
		}
		out, large = map[string][]byte{}, false
		for i, item := range items {
			body, _ := json.Marshal(item) // never fails; sorts the keys
			out[fmt.Sprintf("%02x", i)] = body
			large = large || len(body) > maxFilesBody
		}
		if !large {
			return out, false
		}
	}
	return map[string][]byte{}, true
}

// fileKey returns the key of a resource in a body: "KIND MESH/NAME", or "KIND NAME" without a mesh.
func fileKey(k resource.Key) string {
	if k.Mesh == "" {
		return k.Kind + " " + k.Name
	}
	return k.Kind + " " + k.Mesh + "/" + k.Name
}

// takeFiles compares the file resources of another node with those of this node. A node without
// items publishes nothing.
func (s *Source) takeFiles(id engine.NodeID, items []engine.OwnItem) {
	f := &s.files
	if id == s.node.Self() || f.own == nil {
		return // filesOwn compares all nodes
	}
	theirs := map[string][]byte{}
	for _, item := range items {
		if item.Key.Kind != kindFiles {
			continue
		}
		if item.Body == nil {
			return // the body has not arrived yet
		}
		theirs[item.Key.Name] = item.Body
	}
	if delete(f.differs, id); len(theirs) > 0 && !f.large {
		f.differs[id] = compareFiles(f.own, theirs)
	}
}

// compareFiles returns the differences between the bodies of two nodes.
func compareFiles(own, theirs map[string][]byte) *api.MemberFiles {
	here, there := map[string]string{}, map[string]string{}
	add := func(to map[string]string, body []byte) {
		var digests map[string]string
		if json.Unmarshal(body, &digests) == nil { // an invalid body has no resources
			maps.Copy(to, digests)
		}
	}
	equalNames := maps.EqualFunc(own, theirs, func([]byte, []byte) bool { return true })
	for name, body := range own {
		if !equalNames || !bytes.Equal(body, theirs[name]) {
			add(here, body)
		}
	}
	for name, body := range theirs {
		if !equalNames || !bytes.Equal(body, own[name]) {
			add(there, body)
		}
	}
	out := &api.MemberFiles{Items: []api.FileDifference{}}
	note := func(name, state string) {
		kind, name, _ := strings.Cut(name, " ")
		mesh, short, meshed := strings.Cut(name, "/")
		if !meshed {
			mesh, short = "", name
		}
		out.Items = append(out.Items, api.FileDifference{Type: kind, Mesh: mesh, Name: short, State: state})
	}
	for name, digest := range here {
		switch other, ok := there[name]; {
		case !ok:
			note(name, api.FileMissingThere)
		case other != digest:
			note(name, api.FileDiffers)
		}
	}
	for name := range there {
		if _, ok := here[name]; !ok {
			note(name, api.FileMissingHere)
		}
	}
	slices.SortFunc(out.Items, func(a, b api.FileDifference) int {
		return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Mesh, b.Mesh), cmp.Compare(a.Name, b.Name))
	})
	out.Total = len(out.Items)
	out.Items = slices.Clip(out.Items[:min(out.Total, maxFileDiffs)])
	return out
}
