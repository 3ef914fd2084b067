package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/api"
)

// Event is an event of GET /v1/events.
type Event struct {
	ID   string          // "" for hello, lost, and end
	Name string          // api.EventHello, and so on
	Data json.RawMessage // a document of package api, such as [api.ChangeEvent]
}

// maxEvent is the maximum size of a line of an event in bytes.
const maxEvent = 1 << 20

// Events calls each with the events of the agent as they happen: those of some types, or all, and
// of one mesh, or all. It returns nil after [api.EventEnd], and otherwise the error of each, of
// ctx, or of the connection.
func (c *Client) Events(ctx context.Context, types []string, mesh string, each func(Event) error) error {
	req, err := c.request(ctx, http.MethodGet, "/v1/events", query("types", strings.Join(types, ","), "mesh", mesh), nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "text/event-stream")
	begun := time.Now()
	resp, err := c.http.Do(req)
	if err != nil {
		return c.failed(err, begun)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		data, _ := io.ReadAll(io.LimitReader(resp.Body, maxEvent)) // the status is the error
		return c.refused(resp, data)
	}
	in := bufio.NewScanner(resp.Body)
	in.Buffer(nil, maxEvent)
	for {
		e, err := readEvent(in)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, bufio.ErrTooLong):
			return fmt.Errorf("GET /v1/events: an event has more than %d bytes", maxEvent)
		case err != nil:
			return c.failed(err, begun)
		}
		if err := each(e); err != nil {
			return err
		}
		if e.Name == api.EventEnd {
			return nil
		}
	}
}

// readEvent reads the next event. Comments are signs of life.
func readEvent(in *bufio.Scanner) (e Event, err error) {
	for in.Scan() {
		line := in.Text()
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "" && e.Name != "":
			if !json.Valid(e.Data) {
				return e, fmt.Errorf("the data of an event %.64q is not JSON", e.Name)
			}
			return e, nil
		case field == "id":
			e.ID = value
		case field == "event":
			e.Name = value
		case field == "data":
			e.Data = append(e.Data, value...)
		}
	}
	if err := in.Err(); err != nil {
		return e, err
	}
	return e, io.ErrUnexpectedEOF
}

// request returns a request with the credentials of the client.
func (c *Client) request(ctx context.Context, method, path string, query url.Values, body []byte) (*http.Request,
	error) {
	if c.broken != nil {
		return nil, c.broken
	}
	target := c.base + path // path is already escaped
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, target, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	req.Header.Set("User-Agent", "nearside") // for the audit log
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	return req, nil
}
