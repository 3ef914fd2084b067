package httpapi

import (
	"net"
	"net/http"
	"net/netip"
	"path"
	"runtime/debug"
	"strings"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/serve/audited"
	"github.com/nearside-mesh/nearside/agent/serve/httpjson"
	"github.com/nearside-mesh/nearside/agent/serve/sender"
)

// guard is the outermost handler. It refuses requests that no API client sends, and limits a panic
// of a handler to its own request.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if v := recover(); v != nil {
				audited.Of(r).Panicked()
				s.log.Error("api: internal error in a request", "method", r.Method, "path", r.URL.Path, "panic", v,
					"stack", string(debug.Stack()))
				httpjson.WriteError(w, api.NewError(http.StatusInternalServerError, api.ProblemInternal, "Internal error",
					"the agent had an internal error; its log has the details"))
			}
		}()
		if e := refuseBrowsers(r, !sender.Of(r).Local); e != nil {
			httpjson.WriteError(w, e)
			return
		}
		// ServeMux would redirect an unclean path, which no API client needs.
		if p := r.URL.Path; p == "" || p[0] != '/' || path.Clean(p) != p {
			httpjson.WriteError(w, api.NewNotFound("path %q is not clean", p))
			return
		}
		httpjson.LimitBody(w, r, s.limits.Body)
		next.ServeHTTP(w, r)
	})
}

// refuseBrowsers refuses requests that a web page could have caused: those with headers that only
// browsers send, and over TCP those whose Host is a name other than localhost, because a page can
// rebind its own name to a loopback address.
func refuseBrowsers(r *http.Request, tcp bool) *api.Error {
	refused := func(why string) *api.Error {
		return api.NewError(http.StatusForbidden, api.ProblemBrowser, "Browser request refused",
			"%s; web pages cannot use this API; use nearside or curl --unix-socket", why)
	}
	for _, h := range []string{"Origin", "Sec-Fetch-Site", "Sec-Fetch-Mode", "Sec-Fetch-Dest"} {
		if v := r.Header.Values(h); len(v) > 0 {
			return refused("the request has the header " + h)
		}
	}
	if tcp && !loopbackHost(r.Host) {
		return refused("the Host of the request is not a loopback address or localhost")
	}
	return nil
}

func loopbackHost(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	}
	if strings.EqualFold(name, "localhost") {
		return true
	}
	a, err := netip.ParseAddr(name)
	return err == nil && a.Unmap().IsLoopback()
}
