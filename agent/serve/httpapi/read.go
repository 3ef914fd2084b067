package httpapi

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/agent/deliver/write"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/serve/httpjson"
	"github.com/nearside-mesh/nearside/gossip/engine/sign"
)

const (
	kindMesh      = "Mesh"
	kindDataplane = "Dataplane"
)

// address is the resource in a path, or a collection if Name is empty.
type address struct {
	desc resource.Descriptor
	key  resource.Key
}

// address parses the path values plural, mesh, and name. It accepts any name of a kind.
func (s *Server) address(r *http.Request) (address, *api.Error) {
	plural, mesh, name := r.PathValue("plural"), r.PathValue("mesh"), r.PathValue("name")
	d, ok := s.lookup(plural)
	if !ok {
		return address{}, api.NewNotFound("there is no kind %q", plural)
	}
	a := address{desc: d, key: resource.Key{Kind: d.Kind, Mesh: mesh, Name: name}}
	switch {
	case d.Scope == resource.ScopeGlobal && mesh != "":
		return a, api.NewNotFound("%s belongs to no mesh; it is at /%s", d.Kind, d.Plural)
	case d.Scope == resource.ScopeMesh && mesh == "" && name != "":
		return a, api.NewNotFound("%s belongs to a mesh; it is at /meshes/{mesh}/%s/%s",
			d.Kind, d.Plural, url.PathEscape(name))
	}
	return a, nil
}

func (s *Server) get(w http.ResponseWriter, r *http.Request) *api.Error {
	a, e := s.address(r)
	if e != nil {
		return e
	}
	meta, e := httpjson.Bool(r, "meta")
	if e != nil {
		return e
	}
	k8s, e := kubernetesFormat(r, meta)
	if e != nil {
		return e
	}
	snap := s.opts.Store.Snapshot()
	rec, ok := snap.Get(a.key)
	if !ok {
		return write.Missing(snap, a.key)
	}
	if k8s {
		doc, e := kubernetes(a.desc, rec)
		if e == nil {
			httpjson.Write(w, http.StatusOK, doc)
		}
		return e
	}
	tag := etag(rec)
	w.Header().Set("ETag", tag)
	if m := r.Header.Get("If-None-Match"); m != "" && tagListed(m, tag) {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	doc, e := s.document(rec, meta, s.authors())
	if e != nil {
		return e
	}
	httpjson.Write(w, http.StatusOK, doc)
	return nil
}

func (s *Server) list(w http.ResponseWriter, r *http.Request) *api.Error {
	a, e := s.address(r)
	if e != nil {
		return e
	}
	meta, e := httpjson.Bool(r, "meta")
	if e != nil {
		return e
	}
	size, offset, e := httpjson.Paging(r, s.limits.PageSize)
	if e != nil {
		return e
	}
	snap := s.opts.Store.Snapshot()
	if e := write.MeshExists(snap, a.key.Mesh); e != nil {
		return e
	}
	var all []*resource.Resource
	if set := snap.Set(); a.key.Mesh != "" {
		all = set.InMesh(a.desc.Kind, a.key.Mesh)
	} else {
		all = set.Kind(a.desc.Kind)
	}
	all = only(all, resourceKey, s.visible(r, access.VerbList))
	out := api.List{Total: len(all), Items: []json.RawMessage{}}
	by := s.authors()
	for _, res := range all[min(offset, len(all)):min(offset+size, len(all))] {
		rec, _ := snap.Get(res.Key)
		doc, e := s.document(rec, meta, by)
		if e != nil {
			return e
		}
		out.Items = append(out.Items, doc)
	}
	if offset+size < len(all) {
		q := url.Values{"size": {strconv.Itoa(size)}, "offset": {strconv.Itoa(offset + size)}}
		if meta {
			q.Set("meta", "true")
		}
		next := r.URL.EscapedPath() + "?" + q.Encode()
		out.Next = &next
	}
	httpjson.Write(w, http.StatusOK, out)
	return nil
}

// document returns a record as an [api.Item], or as its universal form with Kuma's two times.
func (s *Server) document(rec store.Record, meta bool, by authors) (json.RawMessage, *api.Error) {
	doc, err := resource.Shown(rec.Resource)
	if err != nil {
		return nil, encodeFailed(rec.Key, err)
	}
	if !meta {
		times := fmt.Sprintf(`{"creationTime":%q,"modificationTime":%q,`,
			rec.Created.UTC().Format(time.RFC3339), rec.Modified.UTC().Format(time.RFC3339))
		return append([]byte(times), strings.TrimPrefix(string(doc), "{")...), nil
	}
	out, err := json.Marshal(api.Item{Meta: s.metaOf(rec, by), Resource: doc})
	if err != nil {
		return nil, encodeFailed(rec.Key, err)
	}
	return out, nil
}

func encodeFailed(k resource.Key, err error) *api.Error {
	return api.NewError(http.StatusInternalServerError, api.ProblemInternal, "Internal error",
		"%s cannot be encoded: %v", k, err)
}

// authors names the author of a change.
type authors = func(name string, signer sign.ID) api.Author

func (s *Server) authors() authors {
	if s.opts.Authors == nil {
		return func(name string, _ sign.ID) api.Author { return api.Author{Name: name} }
	}
	return s.opts.Authors()
}

// signed returns the author of a change, or zero if it has no signature and was made on this node.
func signed(by authors, source store.Source, name string, signer sign.ID) api.Author {
	if local := source.Kind == store.SourceAPI || source.Kind == store.SourceFile ||
		source.Kind == store.SourceEnvoy; local && signer == (sign.ID{}) {
		return api.Author{}
	}
	return by(name, signer)
}

func (s *Server) metaOf(rec store.Record, by authors) api.Meta {
	out := api.Meta{Revision: rec.Revision, ETag: etag(rec), Source: rec.Source.String(), Author: rec.Author,
		SignedBy: signed(by, rec.Source, rec.Author, rec.Signer), Created: rec.Created, Modified: rec.Modified}
	if rec.Source.Kind == store.SourcePublished && s.opts.Publication != nil {
		out.Commit = s.opts.Publication(rec.Source.Detail).Commit
	}
	return out
}

// etag returns the revision and the start of the content hash. If the state file is lost and
// revisions restart, an old tag does not match by accident. For a resource with secrets, it hashes
// the redacted form, so that the hash reveals nothing.
func etag(rec store.Record) string {
	sum := [32]byte{}
	copy(sum[:], rec.Digest[:])
	if rec.HasSecrets {
		if b, err := resource.Shown(rec.Resource); err == nil {
			sum = sha256.Sum256(b)
		}
	}
	return fmt.Sprintf(`"%d-%x"`, rec.Revision, sum[:4])
}

// tagListed reports whether a list of entity tags (RFC 9110, 13.1) contains a tag. Weak tags count,
// because equal revisions have equal bytes.
func tagListed(list, tag string) bool {
	for t := range strings.SplitSeq(list, ",") {
		t = strings.TrimPrefix(strings.TrimSpace(t), "W/")
		if t == "*" || t == tag {
			return true
		}
	}
	return false
}
