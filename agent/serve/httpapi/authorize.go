package httpapi

import (
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/nearside-mesh/nearside/agent/answer/change"
	"github.com/nearside-mesh/nearside/agent/compute/danger"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/serve/audited"
	"github.com/nearside-mesh/nearside/agent/serve/httpjson"
	"github.com/nearside-mesh/nearside/agent/serve/sender"
)

// need is the permission that a route requires. The zero value denies everyone.
type need struct {
	open      bool     // no permission, and no token over TCP
	connected bool     // a connection, over TCP with a token
	verbs     []string // one of these
	kind      string   // kind for the verb; empty: the path value plural, or no kind
	// some is set if a permission for some mesh or name suffices. The handler then checks each
	// object that it shows or changes.
	some bool
}

var (
	anyone    = need{open: true}
	connected = need{connected: true}
	// reader is for content that is the same for all senders with any permission.
	reader = need{verbs: access.Verbs[:], some: true}
	writer = need{verbs: []string{access.VerbCreate, access.VerbUpdate}, some: true}
)

// inspects returns the need of a route that shows an object of a kind. The path has mesh and name,
// except for [access.KindAgent].
func inspects(kind string) need { return need{verbs: []string{access.VerbInspect}, kind: kind} }

// updates returns the need of a route that changes the operation of a proxy or of the agent.
func updates(kind string) need { return need{verbs: []string{access.VerbUpdate}, kind: kind} }

// ofPath returns the need of a route for the resource or collection in its path.
func ofPath(verbs ...string) need { return need{verbs: verbs} }

// orSome returns a need that a permission for some mesh or name satisfies.
func (n need) orSome() need {
	n.some = true
	return n
}

// authorize refuses a request whose sender lacks the need of the route.
func (s *Server) authorize(r *http.Request, n need) *api.Error {
	audited.Of(r).Decided()
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
	p := sender.Of(r)
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
		// For a resource that the sender may see, the missing permission is update.
		if refused == nil || verb == access.VerbUpdate && s.may(r, access.VerbGet, key) && s.exists(key) {
			refused = err
		}
	}
	if refused == nil {
		refused = &access.ForbiddenError{Who: p.Account(), Reason: "no permission allows this route"}
	}
	return denied(refused)
}

func (s *Server) exists(k resource.Key) bool {
	_, ok := s.opts.Store.Snapshot().Get(k)
	return ok
}

// can refuses a request whose sender lacks a permission for a resource.
func (s *Server) can(r *http.Request, verb string, k resource.Key) *api.Error {
	p := sender.Of(r)
	if err := s.opts.Access.Roles.Can(&p, access.ActionOn(verb, k)); err != nil {
		return denied(err)
	}
	return nil
}

// may reports whether the sender has a permission.
func (s *Server) may(r *http.Request, verb string, k resource.Key) bool {
	p := sender.Of(r)
	return s.opts.Access.Roles.May(&p, access.ActionOn(verb, k))
}

// visible returns a function that reports which resources the sender may list or inspect.
func (s *Server) visible(r *http.Request, verb string) func(resource.Key) bool {
	p, roles := sender.Of(r), s.opts.Access.Roles
	all := map[string]bool{} // by kind: permission for every mesh and name
	return func(k resource.Key) bool {
		every, known := all[k.Kind]
		if !known {
			every = roles.May(&p, access.Action{Verb: verb, Kind: k.Kind})
			all[k.Kind] = every
		}
		return every || roles.May(&p, access.ActionOn(verb, k))
	}
}

// only returns the visible items of a list, without changing the list.
func only[T any](list []T, key func(T) resource.Key, visible func(resource.Key) bool) []T {
	hidden := func(x T) bool { return !visible(key(x)) }
	if !slices.ContainsFunc(list, hidden) {
		return list
	}
	return slices.DeleteFunc(slices.Clone(list), hidden)
}

func resourceKey(r *resource.Resource) resource.Key { return r.Key }

// mayWrite refuses to store a resource of any content unless the sender may store one.
func (s *Server) mayWrite(r *http.Request, snap *store.Snapshot, k resource.Key) *api.Error {
	return s.can(r, verbOf(snap, k), k)
}

// mayPut refuses to store resources unless the sender may store each of them with the features that
// it needs. The answer names all denied ones.
func (s *Server) mayPut(r *http.Request, snap *store.Snapshot, rs []*resource.Resource) *api.Error {
	p, roles := sender.Of(r), s.opts.Access.Roles
	var refused []error
	for _, res := range rs {
		a := access.ActionOn(verbOf(snap, res.Key), res.Key)
		dangers := danger.Of(res)
		a.Features = access.FeaturesOf(dangers)
		if roles.May(&p, a) {
			continue
		}
		err := roles.Can(&p, a)
		var f *access.ForbiddenError
		if errors.As(err, &f) && len(dangers) > 0 && s.may(r, access.VerbGet, res.Key) {
			f.Danger = dangers[0].String()
		}
		refused = append(refused, err)
	}
	if len(refused) == 0 {
		return nil
	}
	return denied(refused...)
}

// verbOf returns the verb that stores a resource.
func verbOf(snap *store.Snapshot, k resource.Key) string {
	if _, ok := snap.Get(k); ok {
		return access.VerbUpdate
	}
	return access.VerbCreate
}

// maxRefused bounds the body of a sender that may write nothing, in bytes.
const maxRefused = 64 << 10

// mayWriteNothing returns the answer for a sender that may not store any resource, and limits the
// body. The body is still read, so that the answer can name the denied resources.
func (s *Server) mayWriteNothing(w http.ResponseWriter, r *http.Request) *api.Error {
	e := s.authorize(r, writer)
	if e != nil {
		httpjson.LimitBody(w, r, maxRefused)
	}
	return e
}

// mayPreview refuses to show the effects of a change unless the sender may inspect the affected
// proxies.
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
		if mesh == "" { // a global kind affects all meshes
			at = map[string]bool{"": true}
			break
		}
	}
	p := sender.Of(r)
	for mesh := range at {
		if err := s.opts.Access.Roles.Can(&p,
			access.Action{Verb: access.VerbInspect, Kind: kindDataplane, Mesh: mesh, Name: q.Dataplane}); err != nil {
			return denied(err)
		}
	}
	return nil
}

// mayDiff is mayPreview for a sender that does not write: the answer also shows the stored
// resources.
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

// denied returns the answer for missing permissions.
func denied(errs ...error) *api.Error {
	e := api.NewError(http.StatusForbidden, api.ProblemDenied, "Permission denied", "%s", errs[0].Error())
	if len(errs) > 1 {
		e.Detail = fmt.Sprintf("nothing was stored: this user may not write %d of the documents", len(errs))
	}
	for _, err := range errs {
		var f *access.ForbiddenError
		if !errors.As(err, &f) {
			continue
		}
		a := f.Action
		if a.Kind == kindMesh {
			a.Mesh = "" // a Mesh is in no mesh; see [access.ActionOn]
		}
		e.Denied = append(e.Denied,
			api.Denied{Who: f.Who, Verb: a.Verb, Kind: a.Kind, Mesh: a.Mesh, Name: a.Name, Features: a.Features.Names(),
				Roles: append([]string{}, f.Roles...)})
		if len(errs) > 1 {
			e.InvalidParameters = append(e.InvalidParameters, api.InvalidParameter{Reason: err.Error(),
				Document: resource.Key{Kind: a.Kind, Mesh: a.Mesh, Name: a.Name}.String()})
		}
	}
	return e
}
