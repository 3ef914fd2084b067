package inspect

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/nearside-mesh/nearside/agent/resource"
	"github.com/nearside-mesh/nearside/agent/store"
)

// diff is POST /v1/diff: a stream of documents, and in the query what else would change. It stores nothing, so every
// reader may ask.
func (s *Server) diff(w http.ResponseWriter, r *http.Request) *Error {
	shadow, e := boolQuery(r, "shadow")
	if e != nil {
		return e
	}
	q := r.URL.Query()
	c := Comparison{Shadow: shadow}
	for _, f := range []struct {
		name string
		to   *string
	}{{"mesh", &c.Mesh}, {"dataplane", &c.Dataplane}} {
		if v, ok := q[f.name]; ok {
			if len(v) != 1 || v[0] == "" {
				return invalidQuery(f.name, strings.Join(v, ","), "one name, or leave it out for all")
			}
			*f.to = v[0]
		}
	}
	omit, e := itemsQuery(r, "omit", "omitted", "items", "patch")
	if e != nil {
		return e
	}
	for _, v := range q["delete"] {
		k, e := s.key(v)
		if e != nil {
			return e
		}
		c.Delete = append(c.Delete, k)
	}
	if r.ContentLength != 0 || !shadow && len(c.Delete) == 0 {
		body, e := s.body(r)
		if e != nil {
			return e
		}
		if c.Put, e = s.decodeAll(body); e != nil {
			return e
		}
	}
	d, e := s.compare(r.Context(), c)
	if e != nil {
		return e
	}
	s.verifyDiff(r.Context(), &c, d)
	for i := range d.Proxies {
		for _, part := range [...]*PartDiff{&d.Proxies[i].Config, &d.Proxies[i].Rules} {
			if omit["items"] {
				part.Items = []ItemDiff{}
			}
			if omit["patch"] {
				part.Patch = []Operation{}
			}
		}
	}
	writeJSON(w, http.StatusOK, d)
	return nil
}

// key reads TYPE/MESH/NAME, or TYPE/NAME of a global kind.
func (s *Server) key(text string) (resource.Key, *Error) {
	typ, rest, _ := strings.Cut(text, "/")
	d, ok := s.opts.Registry.Lookup(typ)
	if !ok {
		return resource.Key{}, invalidQuery("delete", text, typ+" is no kind of resource")
	}
	k := resource.Key{Kind: d.Kind, Name: rest}
	if d.Scope != resource.ScopeGlobal {
		k.Mesh, k.Name, _ = strings.Cut(rest, "/")
	}
	if k.Name == "" || d.Scope != resource.ScopeGlobal && k.Mesh == "" {
		return k, invalidQuery("delete", text, "TYPE/MESH/NAME, or TYPE/NAME of a kind that belongs to no mesh")
	}
	return k, nil
}

// compare compares the present resources with others, for the proxies of this agent. One comparison is made at a time:
// it may take all of a processor for a while, and what the agent is there for goes first.
func (s *Server) compare(ctx context.Context, c Comparison) (*Diff, *Error) {
	select {
	case s.comparing <- struct{}{}:
		defer func() { <-s.comparing }()
	case <-ctx.Done():
		return nil, problem(http.StatusServiceUnavailable, ProblemNotReady, "Busy", "another comparison is under way; repeat the request in a moment")
	}
	last := s.opts.Last()
	if last == nil {
		return nil, notReady()
	}
	snap := s.opts.Store.Snapshot()
	c.Set, c.NewMesh, c.Rendered = snap.Set(), s.opts.NewMesh, &s.rendered
	if last.Revision == snap.Revision() {
		c.Made = last.Meshes
	}
	c.Connected = s.connected()
	d, err := Compare(ctx, c)
	var e *Error
	switch {
	case errors.As(err, &e):
		return nil, e
	case err != nil:
		return nil, problem(http.StatusInternalServerError, ProblemGeneration, "No diff", "%s", err.Error())
	}
	for i := range d.Resources {
		r := &d.Resources[i]
		if rec, ok := snap.Get(resource.Key{Kind: r.Type, Mesh: r.Mesh, Name: r.Name}); ok && rec.Source.Kind != store.SourceAPI {
			r.Owner = rec.Source.String()
		}
	}
	return d, nil
}

// preview is what a write would change on proxies. It is left out where it cannot be said yet.
func (s *Server) preview(ctx context.Context, put []*resource.Resource, gone ...resource.Key) *Diff {
	d, e := s.compare(ctx, Comparison{Put: put, Delete: gone})
	if e != nil {
		s.log.Debug("api: a dry run has no diff", "reason", e.Error())
		return nil
	}
	return d
}
