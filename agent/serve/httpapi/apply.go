package httpapi

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"strconv"

	"github.com/nearside-mesh/nearside/agent/deliver/write"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/serve/httpjson"
)

// apply is POST /v1/apply. It validates all documents of a stream before it stores any, and stores
// all in one step.
func (s *Server) apply(w http.ResponseWriter, r *http.Request) *api.Error {
	dry, e := httpjson.Bool(r, "dryRun")
	if e != nil {
		return e
	}
	omit, e := httpjson.Items(r, "omit", "omitted", "items", "patch")
	if e != nil {
		return e
	}
	nothing := s.mayWriteNothing(w, r)
	body, e := httpjson.Body(r)
	if e != nil {
		return cmp.Or(nothing, e)
	}
	release, e := s.bulky(r, body)
	if e != nil {
		return e
	}
	defer release()
	rs, kept, e := s.decodeAll(body)
	if e != nil {
		return cmp.Or(nothing, e)
	}
	if len(rs) > 1 && (r.Header.Get("If-Match") != "" || r.Header.Get("If-None-Match") != "") {
		return api.NewInvalid("If-Match and If-None-Match require one resource, but the body has " + strconv.Itoa(len(rs)))
	}
	out, e := s.write(r, write.Request{Put: rs, Kept: kept, DryRun: dry, Omit: slices.Collect(maps.Keys(omit))})
	if e != nil {
		return e
	}
	longOf(r.Context()).prolong()
	httpjson.Write(w, http.StatusOK, out)
	return nil
}

// decodeAll decodes a stream of documents without duplicate resources.
func (s *Server) decodeAll(body []byte) ([]*resource.Resource, keptSecrets, *api.Error) {
	rs, kept, faults := s.decode(body)
	seen := map[resource.Key]bool{}
	for _, res := range rs {
		if seen[res.Key] {
			faults = append(faults,
				resource.Fault{Resource: res.Key.String(), Reason: res.Key.String() + " is in the stream twice; keep one"})
		}
		seen[res.Key] = true
	}
	if len(faults) > 0 {
		return nil, nil, invalidDocument(faults, true)
	}
	if len(rs) == 0 {
		return nil, nil, api.NewInvalid("the body has no document; send resources as JSON or YAML")
	}
	return rs, kept, nil
}

// rollback is POST /v1/rollback. It writes the content of an earlier revision as a new one, which
// also restores a deleted resource.
func (s *Server) rollback(w http.ResponseWriter, r *http.Request) *api.Error {
	nothing := s.mayWriteNothing(w, r)
	body, e := httpjson.Body(r)
	if e != nil {
		return cmp.Or(nothing, e)
	}
	var req api.Rollback
	if e := httpjson.Decode(body, &req); e != nil {
		return cmp.Or(nothing, e)
	}
	key, e := s.named(req.Type, req.Mesh, req.Name)
	if e != nil {
		return cmp.Or(nothing, e)
	}
	s.audit.About(r, key)
	// checked before the answer reveals anything about the resource
	if e := s.mayWrite(r, s.opts.Store.Snapshot(), key); e != nil {
		return e
	}
	rev, e := s.revision(key, req.Revision)
	if e != nil {
		return e
	}
	out, e := s.write(r, write.Request{Put: []*resource.Resource{rev.Resource}, DryRun: req.DryRun})
	if e != nil {
		return e
	}
	httpjson.Write(w, http.StatusOK, out)
	return nil
}

// named returns the key of the resource in a request.
func (s *Server) named(typ, mesh, name string) (resource.Key, *api.Error) {
	d, ok := s.opts.Registry.Lookup(typ)
	if !ok {
		return resource.Key{}, httpjson.InvalidField("type", "%q is not a kind", typ)
	}
	key := resource.Key{Kind: d.Kind, Mesh: mesh, Name: name}
	switch {
	case name == "":
		return key, httpjson.InvalidField("name", "is empty; name the resource")
	case d.Scope == resource.ScopeGlobal:
		key.Mesh = ""
	case mesh == "":
		return key, httpjson.InvalidField("mesh", "is empty; %s belongs to a mesh", d.Kind)
	}
	return key, nil
}

// revision finds a revision that can be restored.
func (s *Server) revision(key resource.Key, number uint64) (store.Revision, *api.Error) {
	revs := s.opts.Store.History(key)
	if len(revs) == 0 {
		return store.Revision{}, write.Missing(s.opts.Store.Snapshot(), key)
	}
	kept := ""
	for _, rev := range revs {
		if rev.Revision == number {
			if rev.Deleted {
				return rev, httpjson.InvalidField("revision", "%d is the deletion of %s; delete the resource instead", number, key)
			}
			return rev, nil
		}
		if !rev.Deleted {
			kept += " " + strconv.FormatUint(rev.Revision, 10)
		}
	}
	return store.Revision{}, httpjson.InvalidField("revision", "%d is not in the history of %s; its revisions are:%s",
		number, key, kept)
}

func keysOf(rs []*resource.Resource) []resource.Key {
	out := make([]resource.Key, len(rs))
	for i, res := range rs {
		out[i] = res.Key
	}
	return out
}
