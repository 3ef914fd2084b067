package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/nearside-mesh/nearside/agent/answer/attribute"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/serve/httpjson"
)

// Limits of the work for GET /v1/dataplanes/{mesh}/{name}/sources.
const (
	sourceTrials = 1000 // generated configs
	sourceTime   = 2 * time.Second
)

// sources is GET /v1/dataplanes/{mesh}/{name}/sources.
func (s *Server) sources(w http.ResponseWriter, r *http.Request) *api.Error {
	m, e := s.mesh(r.PathValue("mesh"))
	if e != nil {
		return e
	}
	if name := r.PathValue("name"); m.View.Dataplane(name) == nil {
		return api.NewNotFound("mesh %q has no dataplane %q", m.View.Name, name)
	}
	ctx, cancel := context.WithTimeout(r.Context(), sourceTime)
	defer cancel()
	id := generate.ProxyID{Mesh: m.View.Name, Name: r.PathValue("name"), Flavor: node.FlavorEnvoy}
	found, err := attribute.Lines(m, id, s.opts.Registry.DecodeOne, func(trials int) bool {
		return trials >= sourceTrials || ctx.Err() != nil
	})
	if err != nil {
		return generationError(err)
	}
	out := api.ConfigSources{Mesh: id.Mesh, Name: id.Name, Items: make([]api.ConfigSource, 0, len(found.Lines))}
	for _, l := range found.Lines {
		item := api.ConfigSource{Type: l.TypeURL, Resource: l.Name, Path: l.Path}
		for _, by := range l.By {
			item.By = append(item.By, api.FlowPolicy{Ref: api.RefOf(by.Policy), Field: by.Field})
		}
		out.Items = append(out.Items, item)
	}
	if found.Incomplete {
		out.Truncated = fmt.Sprintf("the limit of %d values, %d configs, or %s was reached", attribute.MaxLines,
			sourceTrials, sourceTime)
	}
	httpjson.Write(w, http.StatusOK, out)
	return nil
}

// schema is GET /v1/schemas/{kind}.
func (s *Server) schema(w http.ResponseWriter, r *http.Request) *api.Error {
	d, ok := s.opts.Registry.Lookup(r.PathValue("kind"))
	if !ok {
		return api.NewNotFound("there is no kind %q", r.PathValue("kind"))
	}
	httpjson.Write(w, http.StatusOK, kinds.Schema(d))
	return nil
}
