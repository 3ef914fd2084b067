package httpapi

import (
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/answer/change"
	"github.com/nearside-mesh/nearside/agent/deliver/write"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/serve/httpjson"
)

// diff is POST /v1/diff: a stream of documents, with further changes in the query. It stores
// nothing, and requires permission to inspect the proxies.
func (s *Server) diff(w http.ResponseWriter, r *http.Request) *api.Error {
	shadow, e := httpjson.Bool(r, "shadow")
	if e != nil {
		return e
	}
	all, e := httpjson.Bool(r, "allNodes")
	if e != nil {
		return e
	}
	query := r.URL.Query()
	q := change.Question{Shadow: shadow, All: all}
	for _, f := range []struct {
		name string
		to   *string
	}{{"mesh", &q.Mesh}, {"dataplane", &q.Dataplane}} {
		if v, ok := query[f.name]; ok {
			if len(v) != 1 || v[0] == "" {
				return httpjson.InvalidQuery(f.name, strings.Join(v, ","), "give one name, or omit it for all")
			}
			*f.to = v[0]
		}
	}
	omit, e := httpjson.Items(r, "omit", "omitted", "items", "patch")
	if e != nil {
		return e
	}
	for _, v := range query["delete"] {
		k, e := s.key(v)
		if e != nil {
			return e
		}
		q.Delete = append(q.Delete, k)
	}
	if r.ContentLength != 0 || !shadow && len(q.Delete) == 0 {
		body, e := httpjson.Body(r)
		if e != nil {
			return e
		}
		release, e := s.bulky(r, body)
		if e != nil {
			return e
		}
		defer release()
		if q.Put, _, e = s.decodeAll(body); e != nil {
			return e
		}
	}
	if e := s.mayDiff(r, &q); e != nil {
		return e
	}
	q.NoPatches = omit["patch"]
	d, v, e := s.writer.Preview(r.Context(), q, longOf(r.Context()))
	if e != nil {
		return e
	}
	d.Findings = append(d.Findings, v.Findings...)
	write.LeaveOut(d, slices.Collect(maps.Keys(omit)))
	longOf(r.Context()).prolong()
	httpjson.Write(w, http.StatusOK, d)
	return nil
}

// key parses TYPE/MESH/NAME, or TYPE/NAME of a global kind.
func (s *Server) key(text string) (resource.Key, *api.Error) {
	typ, rest, _ := strings.Cut(text, "/")
	d, ok := s.opts.Registry.Lookup(typ)
	if !ok {
		return resource.Key{}, httpjson.InvalidQuery("delete", text, typ+" is not a kind")
	}
	k := resource.Key{Kind: d.Kind, Name: rest}
	if d.Scope != resource.ScopeGlobal {
		k.Mesh, k.Name, _ = strings.Cut(rest, "/")
	}
	if k.Name == "" || d.Scope != resource.ScopeGlobal && k.Mesh == "" {
		return k, httpjson.InvalidQuery("delete", text, "give TYPE/MESH/NAME, or TYPE/NAME for a global kind")
	}
	return k, nil
}
