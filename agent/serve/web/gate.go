package web

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/model/api"
)

// PageHeader is a header of all requests of the page. Another site cannot send it: browsers first
// ask the server for permission, which it does not give.
const PageHeader = "X-Nearside-Page"

// policy is the Content-Security-Policy of every answer.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"

// secured are the headers of every answer.
var secured = map[string]string{
	"Content-Security-Policy":      policy,
	"X-Content-Type-Options":       "nosniff",
	"X-Frame-Options":              "DENY", // for browsers without frame-ancestors
	"Referrer-Policy":              "no-referrer",
	"Cross-Origin-Opener-Policy":   "same-origin",
	"Cross-Origin-Resource-Policy": "same-origin",
	"Permissions-Policy":           "camera=(), geolocation=(), microphone=()",
	"Cache-Control":                "no-store",
}

// secure sets the headers of every answer.
func secure(h http.Header) {
	for name, value := range secured {
		h.Set(name, value)
	}
}

// kind is what a request asks for.
type kind int

const (
	asksPage  kind = iota // the document, also from a link elsewhere
	asksAsset             // another file of the page
	asksData              // the API, or ui/
)

// kindOf classifies a clean path without its first slash.
func kindOf(p string) kind {
	switch {
	case p == "" || p == indexFile:
		return asksPage
	case under(p, "api") || under(p, "ui"):
		return asksData
	}
	return asksAsset
}

func under(p, dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }

// refused returns the answer to a request that the page has not sent.
func refused(why string, args ...any) *api.Error {
	return api.NewError(http.StatusForbidden, api.ProblemBrowser, "Request refused", why, args...)
}

// gate refuses requests that neither the page nor its user has caused. named reports whether a host
// is a configured name of this server.
func gate(r *http.Request, named func(host string) bool) *api.Error {
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !allowedHost(r.Host, local, r.TLS != nil, named) {
		return refused("the Host %q is not an address or a name of this server; open the URL that it printed, "+
			"or add the name to ui.hosts", clip.Value(r.Host))
	}
	if r.Header.Get("Upgrade") != "" {
		return refused("the page uses no other protocol than HTTP; send the request without Upgrade")
	}
	if p := r.URL.Path; p == "" || p[0] != '/' || cleaned(p) != p || strings.ContainsAny(p, "\\\x00") {
		return api.NewNotFound("the path %q is not clean", clip.Value(p))
	}
	what := kindOf(r.URL.Path[1:])
	read := r.Method == http.MethodGet || r.Method == http.MethodHead
	if !read && (what != asksData || !slices.Contains(dataMethods, r.Method)) {
		return api.NewError(http.StatusMethodNotAllowed, api.ProblemMethod, "Method not allowed",
			"%s is not allowed here; allowed: GET, HEAD", clip.Value(r.Method))
	}
	return fromPage(r, what)
}

// dataMethods are the methods of the API, besides GET and HEAD.
var dataMethods = []string{http.MethodPut, http.MethodPost, http.MethodDelete}

// cleaned is path.Clean, except that it keeps a final slash.
func cleaned(p string) string {
	c := path.Clean(p)
	if strings.HasSuffix(p, "/") && c != "/" {
		return c + "/"
	}
	return c
}

// fromPage refuses a request of another site or of a frame.
func fromPage(r *http.Request, what kind) *api.Error {
	site, dest, mode := r.Header.Get("Sec-Fetch-Site"), r.Header.Get("Sec-Fetch-Dest"), r.Header.Get("Sec-Fetch-Mode")
	switch dest {
	case "frame", "iframe", "embed", "object", "fencedframe":
		return refused("the page cannot be shown in a frame; open it in a tab")
	}
	if origins := r.Header.Values("Origin"); len(origins) > 0 &&
		(len(origins) > 1 || !sameOrigin(origins[0], r.Host, r.TLS != nil)) {
		return refused("the request comes from the page of another origin, %q", clip.Value(origins[0]))
	}
	switch what {
	case asksPage:
		if site != "" && site != "same-origin" && site != "none" && (mode != "navigate" || dest != "document") {
			return refused("another site can only link to the page; open it in a tab")
		}
	case asksAsset:
		if site != "" && site != "same-origin" && site != "none" {
			return refused("another site cannot read the files of the page")
		}
	case asksData:
		if site != "" && site != "same-origin" {
			return refused("only the page itself can send this request")
		}
		if v := r.Header.Values(PageHeader); len(v) != 1 || v[0] != "1" {
			return refused("the request has no header %q; only the page can send this request, so open the page, "+
				"or use the API of the agent (nearside, or curl --unix-socket)", PageHeader+": 1")
		}
	}
	return nil
}

// sameOrigin reports whether an Origin is that of the page. Without TLS the scheme may also be
// https, because of a proxy in front of a configured name.
func sameOrigin(origin, host string, encrypted bool) bool {
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" || u.Path != "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return false
	}
	if u.Scheme != "https" && (encrypted || u.Scheme != "http") {
		return false
	}
	return strings.EqualFold(u.Host, host)
}

// allowedHost reports whether a Host header names this server: the address of the connection with
// its port, localhost on a loopback address, or a configured name. Any other name may be one that
// a site has rebound to this address.
func allowedHost(host string, local net.Addr, encrypted bool, named func(string) bool) bool {
	name, port := splitHost(host)
	if name == "" {
		return false
	}
	if named != nil && named(strings.ToLower(name)) {
		return true
	}
	t, ok := local.(*net.TCPAddr)
	if !ok {
		return false
	}
	at := t.AddrPort()
	if port == "" {
		port = "80"
		if encrypted {
			port = "443"
		}
	}
	if port != portText(at.Port()) {
		return false
	}
	if strings.EqualFold(name, "localhost") {
		return at.Addr().Unmap().IsLoopback()
	}
	a, err := netip.ParseAddr(name)
	return err == nil && a.Unmap() == at.Addr().Unmap()
}

// splitHost splits a Host header into a name or an address without brackets, and a port or "". The
// name is "" if the header is invalid.
func splitHost(host string) (name, port string) {
	if strings.HasPrefix(host, "[") || strings.Count(host, ":") == 1 {
		if strings.HasSuffix(host, "]") {
			return strings.Trim(host, "[]"), ""
		}
		name, port, err := net.SplitHostPort(host)
		if err != nil || port == "" {
			return "", ""
		}
		return name, port
	}
	if strings.Contains(host, ":") {
		return "", ""
	}
	return host, ""
}
