package trace

import (
	"errors"
	"fmt"
	"net/url"

	"github.com/nearside-mesh/nearside/agent/kinds/toolkit"
)

// endpoint is where a collector listens.
type endpoint struct {
	toolkit.Collector
	explicitPort bool // the port is not a default
	tls          bool
	authority    string // host and port as the URL has them
	path         string // with the query, as requests have it
}

// parseURL reads the URL of a collector.
func parseURL(s string) (endpoint, error) {
	u, err := url.Parse(s)
	switch {
	case err != nil:
		var reason *url.Error
		if errors.As(err, &reason) {
			err = reason.Err // without the URL, which may hold credentials
		}
		return endpoint{}, fmt.Errorf("not a URL: %w", err)
	case u.Scheme != "http" && u.Scheme != "https":
		return endpoint{}, fmt.Errorf("the scheme is %q: give a URL of http or https", u.Scheme)
	case u.Opaque != "" || u.Hostname() == "":
		return endpoint{}, errors.New("the URL names no host")
	case u.User != nil:
		return endpoint{}, errors.New("the URL holds credentials, which Envoy cannot send: remove them")
	case u.Fragment != "":
		return endpoint{}, errors.New("the URL has a fragment, which is never sent: remove it")
	}
	e := endpoint{Collector: toolkit.Collector{Host: u.Hostname(), Port: 80}, tls: u.Scheme == "https", authority: u.Host, path: u.EscapedPath()}
	if e.tls {
		e.Port = 443
	}
	if u.RawQuery != "" {
		e.path += "?" + u.RawQuery
	}
	if p := u.Port(); p != "" {
		e.explicitPort = true
		if e.Port, err = toolkit.ParsePort(p); err != nil {
			return endpoint{}, err
		}
	}
	return e, nil
}
