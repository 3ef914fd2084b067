package httpapi

import (
	"cmp"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/answer/explain"
	"github.com/nearside-mesh/nearside/agent/answer/explaindns"
	"github.com/nearside-mesh/nearside/agent/compute/names"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/serve/httpjson"
)

// dns is GET /v1/dns?mesh=&name=&size=&offset=. A sender without permission to inspect everything
// sees the names of services that it may inspect.
func (s *Server) dns(w http.ResponseWriter, r *http.Request) *api.Error {
	q := r.URL.Query()
	size, e := httpjson.Int(r, "size", s.limits.PageSize, 0, httpjson.MaxPage)
	if e != nil {
		return e
	}
	offset, e := httpjson.Int(r, "offset", 0, 0, 1<<31-1)
	if e != nil {
		return e
	}
	state := explaindns.Resolver{DNSStatus: api.DNSStatus{State: api.DNSOff, Reason: "this agent has no resolver",
		Listen: []string{}, Suffixes: []api.DNSSuffix{}, Views: []api.DNSView{}, Upstreams: []api.DNSUpstream{}}}
	if s.opts.DNS != nil {
		state = s.opts.DNS()
	}
	out := api.DNS{DNSStatus: state.DNSStatus, Items: []api.DNSName{}}
	visible := s.visible(r, access.VerbInspect)
	if !s.may(r, access.VerbInspect, resource.Key{}) {
		out.QueryLog, out.Origins = nil, nil
		out.Views = slices.DeleteFunc(slices.Clone(out.Views), func(v api.DNSView) bool {
			return slices.ContainsFunc(v.Dataplanes, func(d string) bool {
				in, name, _ := strings.Cut(d, "/")
				return !visible(resource.Key{Kind: kindDataplane, Mesh: in, Name: name})
			})
		})
	}
	var all []*names.Name
	if state.Table != nil {
		all = only(chosen(state.Table, q.Get("mesh"), q.Get("name")), explaindns.NameKey, visible)
	}
	out.Total = len(all)
	var claims names.Claims
	for _, n := range all[min(offset, len(all)):min(offset+size, len(all))] {
		out.Items = append(out.Items, explaindns.DNSNameOf(n, &claims, visible))
	}
	out.Next = httpjson.NextPage(r, offset, size, len(all))
	httpjson.Write(w, http.StatusOK, out)
	return nil
}

// chosen returns the names of a mesh, or one name. An empty argument selects all.
func chosen(t *names.Table, mesh, name string) []*names.Name {
	list := t.Names
	if name != "" {
		list = nil
		if n := t.Find(name); n != nil {
			list = []*names.Name{n}
		}
	}
	if mesh == "" {
		return list
	}
	return slices.DeleteFunc(slices.Clone(list), func(n *names.Name) bool { return n.Mesh != mesh })
}

// explainName answers a question about a name.
func (s *Server) explainName(r *http.Request, q *explain.DNSQuestion) (*explaindns.DNS, *api.Error) {
	if q.Name == "" {
		return nil, httpjson.InvalidField("dns.name", "is empty; give a name")
	}
	if q.Dataplane != "" {
		if e := s.can(r, access.VerbInspect,
			resource.Key{Kind: kindDataplane, Mesh: cmp.Or(q.Mesh, resource.DefaultMesh), Name: q.Dataplane}); e != nil {
			return nil, e
		}
	}
	last := s.opts.Last()
	if last == nil || s.opts.DNS == nil {
		return nil, api.NewNotReady()
	}
	state := s.opts.DNS()
	if state.Table == nil {
		return nil, api.NewError(http.StatusConflict, api.ProblemNotReady, "No resolver", "the agent has no resolver: %s",
			state.Reason)
	}
	if !s.may(r, access.VerbInspect, resource.Key{}) {
		state.Origins = nil
	}
	out, err := explaindns.Name(explaindns.DNSInput{Resolver: state, Meshes: last.Meshes,
		Visible: s.visible(r, access.VerbInspect)}, q)
	var bad *explain.QuestionError
	switch {
	case errors.As(err, &bad):
		return nil, httpjson.InvalidField("dns."+bad.Field, "%s", bad.Reason)
	case err != nil:
		return nil, generationError(err)
	}
	for i := range out.Steps {
		if n := state.Table.Find(out.Steps[i].Name); n != nil {
			if e := s.can(r, access.VerbInspect, explaindns.NameKey(n)); e != nil {
				return nil, e
			}
		}
	}
	return out, nil
}
