package httpapi

import (
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/nearside-mesh/nearside/agent/answer/change"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
)

// need is what a route takes of who calls it, before anything else is done. The zero value lets
// nobody in.
type need struct {
	open      bool     // nothing: no token over TCP either
	connected bool     // a connection, over TCP with a token
	verbs     []string // one of these
	kind      string   // what the verb is about; "": the path value plural, or no kind
	// some is set where it is enough to be allowed some mesh or name: the handler asks about each that
	// it shows or changes.
	some bool
}

var (
	anyone    = need{open: true}
	connected = need{connected: true}
	// reader is for what is the same for all: somebody who may do anything at all may ask it.
	reader = need{verbs: access.Verbs[:], some: true}
	writer = need{verbs: []string{access.VerbCreate, access.VerbUpdate}, some: true}
)

// inspects is the need of a route that shows something about a kind, of which the path has mesh and
// name.
func inspects(kind string) need { return need{verbs: []string{access.VerbInspect}, kind: kind} }

// updates is the need of a route that changes how a proxy of that kind is run.
func updates(kind string) need { return need{verbs: []string{access.VerbUpdate}, kind: kind} }

// ofPath is the need of a route about the resource or collection of its path.
func ofPath(verbs ...string) need { return need{verbs: verbs} }

// orSome is the need that is met by being allowed some mesh or name.
func (n need) orSome() need {
	n.some = true
	return n
}

// authorize refuses a request whose sender does not have what the route takes.
func (s *Server) authorize(r *http.Request, n need) *api.Error {
	rec := recordOf(r)
	rec.decided = true
	if n.open || n.connected {
		return nil
	}
	key := resource.Key{Kind: n.kind, Mesh: r.PathValue("mesh"), Name: r.PathValue("name")}
	if n.kind == "" && r.PathValue("plural") != "" {
		a, e := s.address(r)
		if e != nil {
			return e
		}
		key = a.key
	}
	p := peerOf(r)
	var refused error
	for _, verb := range n.verbs {
		a, can := access.ActionOn(verb, key), s.opts.Access.Roles.Can
		if n.some {
			can = s.opts.Access.Roles.CanSome
		}
		err := can(&p, a)
		if err == nil {
			return nil
		}
		// A change of something that the sender may see is an update.
		if refused == nil || verb == access.VerbUpdate && s.may(r, access.VerbGet, key) && s.exists(key) {
			refused = err
		}
	}
	if refused == nil {
		refused = &access.ForbiddenError{Who: p.Account(), Reason: "this route is open to nobody"}
	}
	return denied(refused)
}

func (s *Server) exists(k resource.Key) bool {
	_, ok := s.opts.Store.Snapshot().Get(k)
	return ok
}

// can refuses a request whose sender may not do something to a resource.
func (s *Server) can(r *http.Request, verb string, k resource.Key) *api.Error {
	p := peerOf(r)
	if err := s.opts.Access.Roles.Can(&p, access.ActionOn(verb, k)); err != nil {
		return denied(err)
	}
	return nil
}

// may is can as yes or no.
func (s *Server) may(r *http.Request, verb string, k resource.Key) bool {
	p := peerOf(r)
	return s.opts.Access.Roles.May(&p, access.ActionOn(verb, k))
}

// visible returns which resources the sender may list or look into.
func (s *Server) visible(r *http.Request, verb string) func(resource.Key) bool {
	p, roles := peerOf(r), s.opts.Access.Roles
	all := map[string]bool{} // by kind: those of every mesh and name
	return func(k resource.Key) bool {
		every, known := all[k.Kind]
		if !known {
			every = roles.May(&p, access.Action{Verb: verb, Kind: k.Kind})
			all[k.Kind] = every
		}
		return every || roles.May(&p, access.ActionOn(verb, k))
	}
}

// only returns the items of a list that are visible; the list itself stays as it is.
func only[T any](list []T, key func(T) resource.Key, visible func(resource.Key) bool) []T {
	hidden := func(x T) bool { return !visible(key(x)) }
	if !slices.ContainsFunc(list, hidden) {
		return list
	}
	return slices.DeleteFunc(slices.Clone(list), hidden)
}

func resourceKey(r *resource.Resource) resource.Key { return r.Key }

// mayWrite refuses to store resources unless the sender may store each of them; every one that he
// may not is named.
func (s *Server) mayWrite(r *http.Request, snap *store.Snapshot, keys ...resource.Key) *api.Error {
	p := peerOf(r)
	var refused []error
	for _, k := range keys {
		verb := access.VerbCreate
		if _, ok := snap.Get(k); ok {
			verb = access.VerbUpdate
		}
		a := access.ActionOn(verb, k)
		if !s.opts.Access.Roles.May(&p, a) {
			refused = append(refused, s.opts.Access.Roles.Can(&p, a))
		}
	}
	if len(refused) == 0 {
		return nil
	}
	return denied(refused...)
}

// maxRefused bounds the body, in bytes, of who may write nothing.
const maxRefused = 64 << 10

// mayWriteNothing returns the answer to who may not store any resource, and bounds what of his body
// is read: that much, so that the answer can name what he may not store.
func (s *Server) mayWriteNothing(w http.ResponseWriter, r *http.Request) *api.Error {
	e := s.authorize(r, writer)
	if e != nil {
		limitBody(w, r, maxRefused)
	}
	return e
}

// mayPreview refuses to show what a change does unless the sender may look into the proxies that it
// touches.
func (s *Server) mayPreview(r *http.Request, q *change.Question) *api.Error {
	at := map[string]bool{}
	switch {
	case q.Mesh != "":
		at[q.Mesh] = true
	case q.Shadow:
		at[""] = true
	}
	if q.Mesh == "" {
		for _, res := range q.Put {
			at[access.ActionOn("", res.Key).Mesh] = true
		}
		for _, k := range q.Delete {
			at[access.ActionOn("", k).Mesh] = true
		}
	}
	for mesh := range at {
		if mesh == "" { // a kind of no mesh touches all
			at = map[string]bool{"": true}
			break
		}
	}
	p := peerOf(r)
	for mesh := range at {
		if err := s.opts.Access.Roles.Can(&p,
			access.Action{Verb: access.VerbInspect, Kind: kindDataplane, Mesh: mesh, Name: q.Dataplane}); err != nil {
			return denied(err)
		}
	}
	return nil
}

// mayDiff is mayPreview for somebody who does not write: the answer shows the stored resources too.
func (s *Server) mayDiff(r *http.Request, q *change.Question) *api.Error {
	if e := s.mayPreview(r, q); e != nil {
		return e
	}
	for _, k := range slices.Concat(q.Delete, keysOf(q.Put)) {
		if e := s.can(r, access.VerbInspect, k); e != nil {
			return e
		}
	}
	return nil
}

// denied is the answer to what a peer may not do.
func denied(errs ...error) *api.Error {
	e := problem(http.StatusForbidden, api.ProblemDenied, "Permission denied", "%s", errs[0].Error())
	if len(errs) > 1 {
		e.Detail = fmt.Sprintf("nothing was stored: %d of the documents may not be written by this user", len(errs))
	}
	for _, err := range errs {
		var f *access.ForbiddenError
		if !errors.As(err, &f) {
			continue
		}
		a := f.Action
		if a.Kind == kindMesh {
			a.Mesh = "" // it is in none; see [access.ActionOn]
		}
		e.Denied = append(e.Denied,
			api.Denied{Who: f.Who, Verb: a.Verb, Kind: a.Kind, Mesh: a.Mesh, Name: a.Name,
				Roles: append([]string{}, f.Roles...)})
		if len(errs) > 1 {
			e.InvalidParameters = append(e.InvalidParameters, api.InvalidParameter{Reason: err.Error(),
				Document: resource.Key{Kind: a.Kind, Mesh: a.Mesh, Name: a.Name}.String()})
		}
	}
	return e
}
