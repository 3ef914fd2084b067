package httpapi

import (
	"net/http"
	"time"

	"github.com/nearside-mesh/nearside/agent/answer/change"
	"github.com/nearside-mesh/nearside/agent/answer/traffic"
	"github.com/nearside-mesh/nearside/agent/deliver/write"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/serve/httpjson"
)

// history is GET /v1/history/{plural}/{mesh}/{name}.
func (s *Server) history(w http.ResponseWriter, r *http.Request) *api.Error {
	a, e := s.address(r)
	if e != nil {
		return e
	}
	revs := s.opts.Store.History(a.key)
	if len(revs) == 0 {
		return write.Missing(s.opts.Store.Snapshot(), a.key)
	}
	out := api.History{Type: a.key.Kind, Mesh: a.key.Mesh, Name: a.key.Name}
	if out.Items, e = s.revisions(a.key, revs); e != nil {
		return e
	}
	httpjson.Write(w, http.StatusOK, out)
	return nil
}

// revisions returns the documents of the revisions of a resource, oldest first.
func (s *Server) revisions(key resource.Key, revs []store.Revision) ([]api.Revision, *api.Error) {
	out := make([]api.Revision, 0, len(revs))
	by := s.authors()
	there := len(revs) == store.HistoryLimit // else the first revision is the creation
	for i, rev := range revs {
		item := api.Revision{Revision: rev.Revision, Time: rev.Time, Source: rev.Source.String(), Author: rev.Author,
			SignedBy: signed(by, rev.Source, rev.Author, rev.Signer)}
		switch {
		case rev.Deleted:
			item.Action = api.ActionDeleted
		case !there:
			item.Action = api.ActionCreated
		case i > 0:
			item.Action, item.Fields = api.ActionChanged, change.Fields(revs[i-1].Resource, rev.Resource)
		}
		there = !rev.Deleted
		if rev.Resource != nil {
			doc, err := resource.Shown(rev.Resource)
			if err != nil {
				return nil, encodeFailed(key, err)
			}
			item.Resource = doc
		}
		out = append(out, item)
	}
	return out, nil
}

// allHistory is GET /v1/history?type=&mesh=&name=&author=&source=&since=: revisions of all
// resources that the sender may get, the newest first.
func (s *Server) allHistory(w http.ResponseWriter, r *http.Request) *api.Error {
	q := r.URL.Query()
	var kind string
	if name := q.Get("type"); name != "" {
		d, ok := s.opts.Registry.Lookup(name)
		if !ok {
			return httpjson.InvalidQuery("type", name, "give the name of a kind, or omit it for all")
		}
		kind = d.Kind
	}
	var since time.Time
	if text := q.Get("since"); text != "" {
		var err error
		if since, err = traffic.ParseSince(text, time.Now()); err != nil {
			return httpjson.InvalidQuery("since", text,
				"give a duration above 0 such as 10m, or a time such as 2026-01-31T12:00:00Z")
		}
	}
	mesh, name, author, source := q.Get("mesh"), q.Get("name"), q.Get("author"), q.Get("source")
	visible := s.visible(r, access.VerbGet)
	all, err := s.opts.Store.Heads(func(k resource.Key) bool {
		return !resource.Internal(k.Kind) && (kind == "" || kind == k.Kind) && (name == "" || name == k.Name) &&
			(mesh == "" || mesh == access.ActionOn("", k).Mesh) && visible(k)
	})
	if err != nil {
		return api.NewError(http.StatusInternalServerError, api.ProblemInternal, "Internal error", "%s; see nearside status",
			err.Error())
	}
	var chosen []store.Head
	for _, h := range all {
		if (author == "" || author == h.Author) && (source == "" || source == h.Source.Kind || source == h.Source.String()) &&
			!h.Time.Before(since) {
			chosen = append(chosen, h)
		}
	}
	of := map[resource.Key][]api.Revision{}
	return httpjson.WritePage(w, r, s.limits.PageSize, chosen, func(h store.Head) (api.HistoryItem, *api.Error) {
		list, known := of[h.Key]
		if !known {
			var e *api.Error
			if list, e = s.revisions(h.Key, s.opts.Store.History(h.Key)); e != nil {
				return api.HistoryItem{}, e
			}
			of[h.Key] = list
		}
		out := api.HistoryItem{Type: h.Key.Kind, Mesh: h.Key.Mesh, Name: h.Key.Name, Revision: api.Revision{
			Revision: h.Revision.Revision, Time: h.Time, Source: h.Source.String(), Author: h.Author}}
		for i := range list {
			if list[i].Revision == h.Revision.Revision {
				out.Revision = list[i]
				out.Resource = nil // GET /v1/history/{plural}/{mesh}/{name} has it
			}
		}
		return out, nil
	})
}
