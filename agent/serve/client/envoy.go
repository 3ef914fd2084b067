package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"

	"github.com/nearside-mesh/nearside/agent/model/api"
)

// Resources of Envoy's admin interface, for [Client.Envoy].
const (
	EnvoyConfig   = "xds" // JSON
	EnvoyStats    = "stats"
	EnvoyClusters = "clusters"
)

// Envoy returns a resource of the admin interface of a proxy's Envoy. plural is the kind of the
// proxy, for example dataplanes. mesh is empty for zone proxies.
func (c *Client) Envoy(ctx context.Context, plural, mesh, name, what string, query url.Values) (out []byte, err error) {
	err = c.do(ctx, http.MethodGet, resourcePath(plural, mesh, name)+"/"+what, query, nil, &out)
	return out, err
}

// EnvoyLoggers sets the given log levels on a proxy's Envoy, and returns the levels of all its
// loggers.
func (c *Client) EnvoyLoggers(ctx context.Context, plural, mesh, name string,
	set map[string]string) (*api.Loggers, error) {
	at := path("v1", plural, name) + "/loggers"
	if mesh != "" {
		at = path("v1", plural, mesh, name) + "/loggers"
	}
	if len(set) == 0 {
		return call[api.Loggers](ctx, c, http.MethodGet, at, nil, nil)
	}
	body, err := json.Marshal(api.Loggers{Levels: set})
	if err != nil {
		return nil, err
	}
	return call[api.Loggers](ctx, c, http.MethodPut, at, nil, body)
}
