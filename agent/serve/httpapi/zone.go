package httpapi

import (
	"maps"
	"net/http"
	"slices"

	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/deliver/ads"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// ZoneConfig renders what the Envoy of a proxy at the border of a zone gets, as _config and
// `inspect zoneegress` show it, and what was left out of it; see [ProxyConfig]. It is pure, but for
// the cache, which may be nil.
func ZoneConfig(in generate.ZoneInput, published *generate.Proxy, computed bool,
	cache generate.RenderCache) (*Config, []mesh.Warning, error) {
	p := published
	if computed || p == nil {
		var err error
		if p, err = generate.GenerateZone(in, nil, nil); err != nil {
			return nil, nil, err
		}
	}
	if !computed && published == nil {
		p = firstPublished(p)
	}
	r, err := generate.NewRenderer(cache)
	if err != nil {
		return nil, nil, err
	}
	doc, err := r.Config(p)
	if err != nil {
		return nil, nil, err
	}
	return &Config{XDS: doc}, p.Warnings, nil
}

// zoneConfig is GET /zoneegresses/{name}/_config, and the same of ingresses.
func (s *Server) zoneConfig(t node.Type) handler {
	return func(w http.ResponseWriter, r *http.Request) *Error {
		computed, e := boolQuery(r, "computed")
		if e != nil {
			return e
		}
		last := s.opts.Last()
		if last == nil {
			return notReady()
		}
		key := resource.Key{Kind: t.Kind(), Name: r.PathValue("name")}
		res := s.opts.Store.Snapshot().Set().Get(key)
		if res == nil {
			return notFound("%s does not exist", key)
		}
		c, _, err := ZoneConfig(last.zoneInput(res), last.published(node.Ref{Type: t, Name: key.Name}), computed, &s.rendered)
		if err != nil {
			return generationError(err)
		}
		writeJSON(w, http.StatusOK, c)
		return nil
	}
}

// zoneInput is what the config of a proxy at the border of the zone is made from, without secrets.
func (l *Last) zoneInput(r *resource.Resource) generate.ZoneInput {
	in := generate.ZoneInput{Resource: r, Zone: l.Zone, Flavor: node.FlavorEnvoy, SystemCA: l.SystemCA}
	for _, name := range slices.Sorted(maps.Keys(l.Meshes)) {
		in.Meshes = append(in.Meshes, l.Meshes[name])
	}
	return in
}

// zoneProxy is GET /v1/zoneegresses/{name}/status, and the same of ingresses.
func (s *Server) zoneProxy(t node.Type) handler {
	return func(w http.ResponseWriter, r *http.Request) *Error {
		ref := node.Ref{Type: t, Name: r.PathValue("name")}
		snap := s.opts.Store.Snapshot()
		if p := s.oneProxy(snap, s.opts.Last(), ref); p != nil {
			writeJSON(w, http.StatusOK, p)
			return nil
		}
		if snap.Set().Get(ref.Key()) == nil {
			return notFound("%s does not exist, and no client asks for it", ref.Key())
		}
		writeJSON(w, http.StatusOK, Proxy{Type: t, Name: ref.Name, State: StateDisconnected, Clients: []ads.ProxyStatus{},
			Problems: []Problem{},
			Reason: "no Envoy on this node takes its config; start one with the output of nearside bootstrap --proxy-type " +
				string(t)})
		return nil
	}
}
