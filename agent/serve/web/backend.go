package web

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"

	"github.com/nearside-mesh/nearside/agent/model/api"
)

// fromBrowser are headers that do not reach the API: it refuses requests with those of browsers.
var fromBrowser = []string{"Cookie", "Origin", "Referer", "Authorization", PageHeader, "Sec-Fetch-Site",
	"Sec-Fetch-Mode", "Sec-Fetch-Dest", "Sec-Fetch-User", "Forwarded", "X-Forwarded-For", "X-Forwarded-Host",
	"X-Forwarded-Proto", api.ProgressHeader}

// api passes a request to the backend.
func (s *Server) serveAPI(w http.ResponseWriter, r *http.Request, found *session) {
	out := r.Clone(r.Context())
	out.URL.Path = strings.TrimPrefix(out.URL.Path, "/api")
	out.URL.RawPath = strings.TrimPrefix(out.URL.RawPath, "/api")
	out.RequestURI, out.Host = out.URL.RequestURI(), "localhost"
	if strings.Contains(out.URL.Path, "/../") || strings.HasSuffix(out.URL.Path, "/..") {
		writeProblem(w, api.NewNotFound("the path is not clean"), nil)
		return
	}
	for _, name := range fromBrowser {
		out.Header.Del(name)
	}
	if found.token != "" {
		out.Header.Set("Authorization", "Bearer "+found.token)
	}
	if e := s.permit(out); e != nil {
		writeProblem(w, e, nil)
		return
	}
	status := &patient{ResponseWriter: w}
	s.opts.Backend.ServeHTTP(status, out)
	if status.status == http.StatusUnauthorized && found.token != "" {
		s.sessions.end(found) // the token has expired or is revoked
	}
}

// Proxy returns a backend at another address: the API of an agent on a socket or a server. base is
// its URL; token is a token of its API, or "". The number of its connections is bounded.
func Proxy(base *url.URL, token string, transport http.RoundTripper) http.Handler {
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(base)
			r.Out.Host = base.Host
			if token != "" {
				r.Out.Header.Set("Authorization", "Bearer "+token)
			}
		},
		Transport:     newBounded(transport),
		FlushInterval: -1, // streams
		ModifyResponse: func(r *http.Response) error {
			for name := range secured {
				r.Header.Del(name) // those of this server apply
			}
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			if f, ok := w.(interface{ fail(error) }); ok {
				f.fail(err)
				return
			}
			var refused *api.Error
			if errors.As(err, &refused) {
				writeProblem(w, refused, nil)
				return
			}
			writeProblem(w, unreachable(err), nil)
		},
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
	}
}

// Socket returns a transport to a Unix socket.
func Socket(path string) *http.Transport {
	var d net.Dialer
	return &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: maxShort, IdleConnTimeout: idleTime / 2,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return d.DialContext(ctx, "unix", path) }}
}

// unreachable is the answer while the backend does not respond.
func unreachable(err error) *api.Error {
	if errors.Is(err, context.DeadlineExceeded) {
		err = errors.New("it does not answer in time")
	}
	return api.NewError(http.StatusBadGateway, api.ProblemUnreachable, "The agent is not reachable",
		"%v; the page tries again; see `systemctl status nearside`, or the log of the agent", err)
}
