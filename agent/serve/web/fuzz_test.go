package web_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/serve/web"
)

func listenUnix(path string) (net.Listener, error) { return net.Listen("unix", path) }

// mapped reports whether a host is 127.0.0.1 as an IPv6 address, which no name resolves to.
func mapped(host string) bool {
	a, err := netip.ParseAddrPort(host)
	return err == nil && a.Addr().Unmap() == netip.AddrFrom4([4]byte{127, 0, 0, 1}) && a.Port() == 8080
}

// FuzzGate sends requests of any form without a session. Only the page and its files are served,
// and only for the host of the listener.
func FuzzGate(f *testing.F) {
	for _, seed := range [][5]string{{"GET", "/", "127.0.0.1:8080", "", ""},
		{"GET", "/main.js", "localhost:8080", "http://localhost:8080", "same-origin"},
		{"POST", "/api/v1/apply", "[::1]:8080", "null", "cross-site"}, {"GET", "/?key=%zz", "evil", "https://evil", "none"},
		{"PUT", "/ui/files?path=%2fetc", "127.0.0.1.evil:8080", "http://[", "x"}, {"GET", "/..%2f", "[", "//", ""}} {
		f.Add(seed[0], seed[1], seed[2], seed[3], seed[4])
	}
	s, err := web.New(web.Options{Mode: web.ModeAgent, Login: web.LoginURL, Write: true,
		Backend: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("a request reaches the API") })})
	if err != nil {
		f.Fatal(err)
	}
	local := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8080}
	f.Fuzz(func(t *testing.T, method, target, host, origin, site string) {
		u, err := url.ParseRequestURI(target)
		if err != nil {
			return
		}
		r := (&http.Request{Method: method, URL: u, Host: host, Header: http.Header{}, Body: http.NoBody}).
			WithContext(context.WithValue(context.Background(), http.LocalAddrContextKey, local))
		for name, value := range map[string]string{"Origin": origin, "Sec-Fetch-Site": site} {
			if value != "" {
				r.Header.Set(name, value)
			}
		}
		r.Header.Set(web.PageHeader, "1")
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Code >= 400 {
			return
		}
		if h := strings.ToLower(host); h != "127.0.0.1:8080" && h != "localhost:8080" && !mapped(h) {
			t.Errorf("the Host %q is served: %d", host, w.Code)
		}
		if origin != "" && !strings.EqualFold(origin, "http://"+host) && !strings.EqualFold(origin, "https://"+host) {
			t.Errorf("the Origin %q is served at %q: %d", origin, host, w.Code)
		}
		if w.Header().Get("Set-Cookie") != "" {
			t.Error("a session begins without a key")
		}
	})
}
