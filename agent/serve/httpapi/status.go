package httpapi

import (
	"cmp"
	"context"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/answer/render"
	"github.com/nearside-mesh/nearside/agent/deliver/status"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/serve/httpjson"
	"github.com/nearside-mesh/nearside/agent/serve/sender"
)

// kumactlVersion is a suffix of the version at GET /. kumactl accepts any server whose version
// contains "preview", without comparing versions.
const kumactlVersion = "+kuma.preview"

func (s *Server) index(w http.ResponseWriter, _ *http.Request) *api.Error {
	info := s.opts.Info
	out := api.Index{Info: info, Tagline: info.Product, InstanceID: info.Instance, ClusterID: cmp.Or(info.Zone, "default")}
	out.Hostname, _ = os.Hostname() // "" if it is unknown
	out.Version += kumactlVersion
	httpjson.Write(w, http.StatusOK, out)
	return nil
}

func (s *Server) livez(w http.ResponseWriter, r *http.Request) *api.Error {
	return health(w, r, checksOf(s.opts.Live), nil)
}

func (s *Server) readyz(w http.ResponseWriter, r *http.Request) *api.Error {
	if _, verbose := r.URL.Query()["verbose"]; verbose {
		now := s.Status(r.Context())
		return health(w, r, now.Checks, status.CountProblems(now.Problems))
	}
	return health(w, r, checksOf(s.opts.Ready), nil)
}

func checksOf(list func() []api.Check) []api.Check {
	if list == nil {
		return nil
	}
	return list()
}

// health answers 200 or 503. It lists failed checks always, and successful ones only with verbose.
// Every sender may see it, so it has no names of resources.
func health(w http.ResponseWriter, r *http.Request, checks []api.Check, problems []api.ProblemCount) *api.Error {
	_, verbose := r.URL.Query()["verbose"]
	out := api.Health{Status: "ok", Problems: problems}
	code := http.StatusOK
	for _, c := range checks {
		if !c.OK {
			out.Status, code = "failed", http.StatusServiceUnavailable
		}
		if verbose || !c.OK {
			out.Checks = append(out.Checks, c)
		}
	}
	httpjson.Write(w, code, out)
	return nil
}

func (s *Server) status(w http.ResponseWriter, r *http.Request) *api.Error {
	s.catchUp(r)
	httpjson.Write(w, http.StatusOK, s.tracker.Status(r.Context(), s.viewOf(r)))
	return nil
}

// viewOf returns the part of a status that the sender may see.
func (s *Server) viewOf(r *http.Request) status.View {
	return status.View{Visible: s.visible(r, access.VerbInspect), Whole: s.may(r, access.VerbInspect, resource.Key{}),
		Time: s.limits.LookTime}
}

// Status returns the whole status of the agent.
func (s *Server) Status(ctx context.Context) *api.Status {
	return s.tracker.Status(ctx, status.View{Whole: true, Time: s.limits.LookTime})
}

// Lacking returns the policies without effect, of those whose effect is known in limited time.
func (s *Server) Lacking(ctx context.Context) map[resource.Key]bool { return s.tracker.Lacking(ctx) }

// Losing returns the policies whose access logs an Envoy cannot write. It may take seconds.
func (s *Server) Losing() map[resource.Key]bool { return s.tracker.Losing() }

// names is GET /v1/names?kind=&mesh=&prefix=: the names of resources, or of kinds without kind.
func (s *Server) names(w http.ResponseWriter, r *http.Request) *api.Error {
	q := r.URL.Query()
	out := api.Names{Names: []string{}}
	prefix := q.Get("prefix")
	add := func(name string) {
		if strings.HasPrefix(name, prefix) && len(out.Names) < httpjson.MaxPage {
			out.Names = append(out.Names, name)
		}
	}
	if kind := q.Get("kind"); kind == "" {
		for _, d := range s.opts.Registry.All() {
			add(d.Plural)
		}
	} else {
		d, ok := s.opts.Registry.Lookup(kind)
		if !ok {
			return httpjson.InvalidQuery("kind", kind, "give the name of a kind, or omit it to list kinds")
		}
		mesh := q.Get("mesh")
		if d.Scope != resource.ScopeMesh {
			mesh = ""
		}
		p := sender.Of(r)
		if err := s.opts.Access.Roles.CanSome(&p,
			access.Action{Verb: access.VerbList, Kind: d.Kind, Mesh: mesh}); err != nil {
			return denied(err)
		}
		set := s.opts.Store.Snapshot().Set()
		all := set.Kind(d.Kind)
		if mesh != "" {
			all = set.InMesh(d.Kind, mesh)
		}
		for _, res := range only(all, resourceKey, s.visible(r, access.VerbList)) {
			add(res.Name)
		}
	}
	slices.Sort(out.Names)
	out.Names = slices.Compact(out.Names)
	httpjson.Write(w, http.StatusOK, out)
	return nil
}

func (s *Server) kinds(w http.ResponseWriter, _ *http.Request) *api.Error {
	httpjson.Write(w, http.StatusOK, api.Kinds{Items: render.Kinds(s.opts.Registry)})
	return nil
}
