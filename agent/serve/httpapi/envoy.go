package httpapi

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/deliver/write"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Envoy is one that is asked over its admin interface. What it says is what any process may have
// said.
type Envoy interface {
	// ConfigDump is the answer to /config_dump, with endpoints when these are asked for.
	ConfigDump(ctx context.Context, endpoints bool) ([]byte, error)
	Stats(ctx context.Context) ([]byte, error)    // text
	Clusters(ctx context.Context) ([]byte, error) // text
	// Levels returns the levels of its loggers, after those in set have been given theirs; "" is for
	// all.
	Levels(ctx context.Context, set map[string]string) (map[string]string, error)
}

// envoyOf finds the Envoy of a proxy that takes its config here.
func (s *Server) envoyOf(r *http.Request, t node.Type) (Envoy, *api.Error) {
	ref := node.Ref{Type: t, Mesh: r.PathValue("mesh"), Name: r.PathValue("name")}
	snap := s.opts.Store.Snapshot()
	p := s.tracker.One(snap, s.opts.Last(), ref)
	if p == nil {
		return nil, write.Missing(snap, ref.Key())
	}
	if zone := zoneOf(snap.Set().Get(ref.Key())); zone != "" && zone != s.opts.Info.Zone {
		return nil, problem(http.StatusBadRequest, api.ProblemInvalid, "Its Envoy is in another zone",
			"%s is in zone %s; ask an agent there, since an Envoy is asked on its own node", ref.Key(), zone)
	}
	i := slices.IndexFunc(p.Clients, func(c api.ProxyStatus) bool { return c.Flavor == node.FlavorEnvoy && c.Streams > 0 })
	switch {
	case s.opts.Envoy == nil:
		return nil, unasked("this agent asks no Envoys")
	case i < 0 && p.Node != "":
		return nil, unasked("%s belongs to the node %s; ask the agent there, since an Envoy is asked on its own node",
			ref.Key(), p.Node)
	case i < 0:
		return nil, unasked("%s: %s", ref.Key(), p.Reason)
	}
	return s.opts.Envoy(&p.Clients[i]), nil
}

// zoneOf is the zone that a proxy at the border of a zone belongs to; "" for one that does not say,
// and for all others.
func zoneOf(res *resource.Resource) string {
	if res == nil {
		return ""
	}
	switch spec := res.Spec.(type) {
	case *resource.ZoneEgress:
		return spec.Zone
	case *resource.ZoneIngress:
		return spec.Zone
	}
	return ""
}

// unasked is the answer where an Envoy cannot be asked, with the status and title that Kuma has for
// it.
func unasked(detail string, args ...any) *api.Error {
	return problem(http.StatusInternalServerError, api.ProblemEnvoy, "Could not execute admin operation", detail, args...)
}

const adminHint = "; an Envoy is asked where nearside bootstrap puts its admin socket (--admin-socket), " +
	"and only when the process behind it is the one that takes the config"

// envoyConfig is GET …/dataplanes/{name}/xds?include_eds=: the config that an Envoy has, without
// secrets.
func (s *Server) envoyConfig(t node.Type) handler {
	return func(w http.ResponseWriter, r *http.Request) *api.Error {
		endpoints, e := boolQuery(r, "include_eds")
		if e != nil {
			return e
		}
		envoy, e := s.envoyOf(r, t)
		if e != nil {
			return e
		}
		select { // the config of a large mesh takes many times its size while it is read
		case s.dumping <- struct{}{}:
			defer func() { <-s.dumping }()
		case <-r.Context().Done():
			return unasked("%v", r.Context().Err())
		}
		body, err := envoy.ConfigDump(r.Context(), endpoints)
		if err != nil {
			return unasked("%v"+adminHint, err)
		}
		out, err := generate.RedactDump(body)
		if err != nil {
			return unasked("%v", err)
		}
		writeJSON(w, http.StatusOK, out)
		return nil
	}
}

// envoyText is GET …/dataplanes/{name}/stats and …/clusters.
func (s *Server) envoyText(t node.Type, ask func(Envoy, context.Context) ([]byte, error)) handler {
	return func(w http.ResponseWriter, r *http.Request) *api.Error {
		envoy, e := s.envoyOf(r, t)
		if e != nil {
			return e
		}
		body, err := ask(envoy, r.Context())
		if err != nil {
			return unasked("%v"+adminHint, err)
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		_, _ = w.Write(body) // who has gone does not read it
		return nil
	}
}

// loggers is GET and PUT /v1/dataplanes/{mesh}/{name}/loggers.
func (s *Server) loggers(t node.Type, set bool) handler {
	return func(w http.ResponseWriter, r *http.Request) *api.Error {
		var q api.Loggers
		if set {
			body, e := s.body(r)
			if e == nil {
				e = decodeRequest(body, &q)
			}
			if e != nil {
				return e
			}
			if len(q.Levels) == 0 {
				return invalidField("levels", `no level is given; "" is the name for all loggers`)
			}
			for _, name := range slices.Sorted(maps.Keys(q.Levels)) {
				if !slices.Contains(api.LoggerLevels, q.Levels[name]) {
					return invalidField("levels", "%.64q is none of %s", q.Levels[name], strings.Join(api.LoggerLevels, ", "))
				}
			}
		}
		envoy, e := s.envoyOf(r, t)
		if e != nil {
			return e
		}
		levels, err := envoy.Levels(r.Context(), q.Levels)
		if err != nil {
			return unasked("%v"+adminHint, err)
		}
		writeJSON(w, http.StatusOK, api.Loggers{Levels: levels})
		return nil
	}
}
