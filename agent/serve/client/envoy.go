package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"

	"github.com/nearside-mesh/nearside/agent/model/api"
)

// What an Envoy is asked for.
const (
	EnvoyConfig   = "xds" // JSON
	EnvoyStats    = "stats"
	EnvoyClusters = "clusters"
)

// Envoy returns what the Envoy of a dataplane says of itself, or with the plural of a kind of zone
// proxies, and no mesh, that of one.
func (c *Client) Envoy(ctx context.Context, plural, mesh, name, what string, query url.Values) (out []byte, err error) {
	err = c.do(ctx, http.MethodGet, resourcePath(plural, mesh, name)+"/"+what, query, nil, &out)
	return out, err
}

// EnvoyLoggers returns the levels of the loggers of the Envoy that Envoy would ask, after those in
// set have been given theirs.
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
