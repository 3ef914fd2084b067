package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"

	"github.com/nearside-mesh/nearside/agent/model/api"
)

// Raw returns the unmodified response to a GET request.
func (c *Client) Raw(ctx context.Context, path string, query url.Values) (out []byte, err error) {
	err = c.do(ctx, http.MethodGet, path, query, nil, &out)
	return out, err
}

// Profile returns a profile of the agent for "go tool pprof". seconds applies only to "cpu".
func (c *Client) Profile(ctx context.Context, name string, seconds int) ([]byte, error) {
	return c.Raw(ctx, "/v1/debug/pprof", url.Values{"profile": {name}, "seconds": {strconv.Itoa(seconds)}})
}

// LogLevel returns the log level of the agent.
func (c *Client) LogLevel(ctx context.Context) (string, error) {
	l, err := call[api.LogLevel](ctx, c, http.MethodGet, "/v1/debug/loglevel", nil, nil)
	if err != nil {
		return "", err
	}
	return l.Level, nil
}

// SetLogLevel changes the log level until the agent reloads its config.
func (c *Client) SetLogLevel(ctx context.Context, level string) error {
	body, err := json.Marshal(api.LogLevel{Level: level})
	if err != nil {
		return err
	}
	_, err = call[api.LogLevel](ctx, c, http.MethodPut, "/v1/debug/loglevel", nil, body)
	return err
}
