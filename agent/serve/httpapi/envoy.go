package httpapi

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/deliver/write"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/serve/httpjson"
)

// Envoy queries an Envoy over its admin interface. Its answers are untrusted.
type Envoy interface {
	// ConfigDump returns the answer of /config_dump, optionally with endpoints.
	ConfigDump(ctx context.Context, endpoints bool) ([]byte, error)
	Stats(ctx context.Context) ([]byte, error)    // text
	Clusters(ctx context.Context) ([]byte, error) // text
	// Levels sets the levels of loggers in set, where "" stands for all, and returns the levels of
	// all loggers.
	Levels(ctx context.Context, set map[string]string) (map[string]string, error)
}

// envoyOf returns the Envoy of a proxy that is connected to this agent.
func (s *Server) envoyOf(r *http.Request, t node.Type) (Envoy, *api.Error) {
	ref := node.Ref{Type: t, Mesh: r.PathValue("mesh"), Name: r.PathValue("name")}
	snap := s.opts.Store.Snapshot()
	p := s.tracker.One(snap, s.opts.Last(), ref)
	if p == nil {
		return nil, write.Missing(snap, ref.Key())
	}
	if zone := zoneOf(snap.Set().Get(ref.Key())); zone != "" && zone != s.opts.Info.Zone {
		return nil, api.NewError(http.StatusBadRequest, api.ProblemInvalid, "Envoy in another zone",
			"%s is in zone %s; ask an agent in that zone", ref.Key(), zone)
	}
	i := slices.IndexFunc(p.Clients, func(c api.ProxyStatus) bool { return c.Flavor == node.FlavorEnvoy && c.Streams > 0 })
	switch {
	case s.opts.Envoy == nil:
		return nil, unasked("this agent cannot query Envoys")
	case i < 0 && p.Node != "":
		return nil, unasked("%s belongs to node %s; ask the agent of that node",
			ref.Key(), p.Node)
	case i < 0:
		return nil, unasked("%s: %s", ref.Key(), p.Reason)
	}
	return s.opts.Envoy(&p.Clients[i]), nil
}

// zoneOf returns the zone of a zone proxy, or "" if it has none.
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

// unasked returns the answer for an Envoy that cannot be queried, with Kuma's status and title.
func unasked(detail string, args ...any) *api.Error {
	return api.NewError(http.StatusInternalServerError, api.ProblemEnvoy, "Could not execute admin operation",
		detail, args...)
}

const adminHint = "; the agent queries the admin socket of nearside bootstrap (--admin-socket), " +
	"and only if its process is the connected Envoy"

// noAnswer returns the answer for an error of the admin socket.
func noAnswer(err error) *api.Error {
	if errors.Is(err, access.ErrPodAdmin) {
		return unasked("%v", err)
	}
	return unasked("%v"+adminHint, err)
}

// envoyConfig is GET …/dataplanes/{name}/xds?include_eds=: the config of an Envoy, without secrets.
func (s *Server) envoyConfig(t node.Type) handler {
	return func(w http.ResponseWriter, r *http.Request) *api.Error {
		endpoints, e := httpjson.Bool(r, "include_eds")
		if e != nil {
			return e
		}
		envoy, e := s.envoyOf(r, t)
		if e != nil {
			return e
		}
		if e := s.awaitTurn(r.Context()); e != nil {
			return e
		}
		defer func() { <-s.dumping }()
		body, err := envoy.ConfigDump(r.Context(), endpoints)
		if err != nil {
			return noAnswer(err)
		}
		out, err := generate.RedactDump(body)
		if err != nil {
			return unasked("%v", err)
		}
		httpjson.Write(w, http.StatusOK, out)
		return nil
	}
}

// awaitTurn waits until no other long answer of an Envoy is in memory. The config of a large mesh
// takes several times its size.
func (s *Server) awaitTurn(ctx context.Context) *api.Error {
	select {
	case s.dumping <- struct{}{}:
		return nil
	case <-ctx.Done():
		return unasked("%v", ctx.Err())
	}
}

// envoyText is GET …/dataplanes/{name}/stats and …/clusters.
func (s *Server) envoyText(t node.Type, ask func(Envoy, context.Context) ([]byte, error)) handler {
	return func(w http.ResponseWriter, r *http.Request) *api.Error {
		envoy, e := s.envoyOf(r, t)
		if e != nil {
			return e
		}
		if e := s.awaitTurn(r.Context()); e != nil {
			return e
		}
		defer func() { <-s.dumping }()
		body, err := ask(envoy, r.Context())
		if err != nil {
			return noAnswer(err)
		}
		return httpjson.WriteText(w, body)
	}
}

// loggers is GET and PUT /v1/dataplanes/{mesh}/{name}/loggers.
func (s *Server) loggers(t node.Type, set bool) handler {
	return func(w http.ResponseWriter, r *http.Request) *api.Error {
		var q api.Loggers
		if set {
			body, e := httpjson.Body(r)
			if e == nil {
				e = httpjson.Decode(body, &q)
			}
			if e != nil {
				return e
			}
			if len(q.Levels) == 0 {
				return httpjson.InvalidField("levels", `no level is given; "" stands for all loggers`)
			}
			for _, name := range slices.Sorted(maps.Keys(q.Levels)) {
				if !slices.Contains(api.LoggerLevels, q.Levels[name]) {
					return httpjson.InvalidField("levels", "%.64q is not one of %s", q.Levels[name],
						strings.Join(api.LoggerLevels, ", "))
				}
			}
		}
		envoy, e := s.envoyOf(r, t)
		if e != nil {
			return e
		}
		levels, err := envoy.Levels(r.Context(), q.Levels)
		if err != nil {
			return noAnswer(err)
		}
		httpjson.Write(w, http.StatusOK, api.Loggers{Levels: levels})
		return nil
	}
}
