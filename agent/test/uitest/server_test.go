package uitest_test

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"testing"
)

// policy is the Content-Security-Policy of the page.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"

// serve serves the page for an agent, and returns its address.
func serve(t testing.TB, n *node, write bool) string {
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: "localhost"})
			r.Out.URL.Path = strings.TrimPrefix(r.In.URL.Path, "/api")
			r.Out.URL.RawPath = strings.TrimPrefix(r.In.URL.RawPath, "/api")
			for name := range r.Out.Header {
				if strings.HasPrefix(name, "Sec-") || name == "Origin" || name == "Referer" || name == "Cookie" {
					r.Out.Header.Del(name)
				}
			}
		},
		FlushInterval: -1,
		Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", n.socket())
		}},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusBadGateway)
			_ = json.NewEncoder(w).Encode(map[string]any{"title": "The agent does not answer", "detail": err.Error()})
		},
	}
	mux := http.NewServeMux()
	mux.Handle("/api/", proxy)
	mux.HandleFunc("GET /ui/session", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{"mode": "agent", "login": "url", "write": write, "files": []string{},
			"product": "nearside", "version": "0.0.1", "instance": "node-1", "who": "uid=0 (root)", "expires": nil})
	})
	mux.Handle("/", http.FileServerFS(os.DirFS("../../serve/web/page")))
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", policy)
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return s.URL + "/"
}
