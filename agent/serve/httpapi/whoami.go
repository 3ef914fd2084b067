package httpapi

import (
	"errors"
	"net/http"
	"strings"

	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/serve/httpjson"
	"github.com/nearside-mesh/nearside/agent/serve/sender"
)

func (s *Server) whoami(w http.ResponseWriter, r *http.Request) *api.Error {
	p, roles := sender.Of(r), s.opts.Access.Roles
	out := api.Whoami{Who: p.Account(), Peer: p, Operator: roles.Operator(&p), Roles: append([]string{}, roles.Of(&p)...),
		Verbs: []string{}}
	if p.Token != nil {
		out.Token = p.Token.Subject
	}
	for _, verb := range access.Verbs {
		if roles.CanSome(&p, access.Action{Verb: verb}) == nil {
			out.Verbs = append(out.Verbs, verb)
		}
	}
	switch {
	case out.Operator:
		out.How = "root and the agent's user may do everything"
	case len(out.Roles) > 0:
		out.How = "roles of api.roles"
	case roles.List() != nil:
		out.How = "no role of api.roles names this peer"
	case p.Local:
		out.How = "without api.roles, users who can open the socket may read, and members of its group may write"
	default:
		out.How = "without api.roles, a token may read, and the token of api.tokenFile may write"
	}
	httpjson.Write(w, http.StatusOK, out)
	return nil
}

func (s *Server) whetherCan(w http.ResponseWriter, r *http.Request) *api.Error {
	q := r.URL.Query()
	a := access.Action{Verb: q.Get("verb"), Mesh: q.Get("mesh"), Name: q.Get("name")}
	known := false
	for _, v := range access.Verbs {
		known = known || v == a.Verb
	}
	if !known {
		return httpjson.InvalidQuery("verb", a.Verb, "use one of get, list, inspect, create, update, delete, read-logs")
	}
	if names := q.Get("feature"); names != "" {
		f, err := access.ParseFeatures(strings.Split(names, ",")...)
		if err != nil {
			return httpjson.InvalidQuery("feature", names, err.Error())
		}
		if !a.Writes() || a.Verb == access.VerbDelete {
			return httpjson.InvalidQuery("feature", names, "only create and update need features; omit it")
		}
		a.Features = f
	}
	if kind := q.Get("kind"); strings.EqualFold(kind, access.KindAgent) {
		if a.Verb != access.VerbInspect && a.Verb != access.VerbUpdate && a.Verb != access.VerbReadLogs {
			return httpjson.InvalidQuery("verb", a.Verb, "use inspect, update, or read-logs for Agent")
		}
		a = access.Action{Verb: a.Verb, Kind: access.KindAgent}
	} else if kind != "" {
		d, ok := s.opts.Registry.Lookup(kind)
		if !ok {
			return httpjson.InvalidQuery("kind", kind, "give the name of a kind, or omit it")
		}
		k := resource.Key{Kind: d.Kind, Mesh: a.Mesh, Name: a.Name}
		if d.Scope == resource.ScopeGlobal {
			k.Mesh = ""
		}
		features := a.Features
		a = access.ActionOn(a.Verb, k)
		a.Features = features
	}
	p, roles := sender.Of(r), s.opts.Access.Roles
	out := api.Can{Who: p.Account(), Action: a.String(), Roles: []string{}}
	err := roles.Can(&p, a)
	out.Allowed = err == nil
	if err != nil && roles.CanSome(&p, a) == nil {
		out.Partial = true
		// the answer contains what the peer may see
		out.Allowed = a.Verb == access.VerbList || a.Verb == access.VerbInspect
	}
	if err != nil && !out.Allowed {
		out.Reason = err.Error()
		var f *access.ForbiddenError
		if errors.As(err, &f) {
			out.Roles = append(out.Roles, f.Roles...)
		}
	}
	httpjson.Write(w, http.StatusOK, out)
	return nil
}

func (s *Server) roles(w http.ResponseWriter, _ *http.Request) *api.Error {
	o := s.opts.Access
	list := o.Roles.List()
	httpjson.Write(w, http.StatusOK, api.AccessList{
		Configured: list != nil, Roles: append([]access.Role{}, list...), Missing: append([]string{}, o.Roles.Missing()...),
		ProxiesConfigured: o.Proxies != nil, Proxies: append([]access.ProxyRule{}, o.Proxies...),
	})
	return nil
}
