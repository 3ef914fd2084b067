package match

import (
	"strings"
)

// stream is a request inside an HTTP connection manager.
type stream struct {
	seen *Seen
	peer *Peer
	tls  bool // this proxy terminates the connection's TLS

	method, host, path, scheme string // path includes the query
	headers                    map[string]string
	names                      []string // of headers, in lower case, for messages
	roll                       uint64
	certificate                string // x-forwarded-client-cert as the connection manager sets it
	cleared                    bool   // the connection manager removes the client's header
	latin1                     bool   // regular expressions match bytes as Latin-1 instead of UTF-8
}

const certificateHeader = "x-forwarded-client-cert"

// newStream returns a request on a connection. Like Envoy, it joins headers of one name with commas
// for comparison.
func newStream(r *Request, s *Seen, peer *Peer, tls bool) *stream {
	st := &stream{seen: s, peer: peer, tls: tls, method: r.Method, host: r.Host, path: r.Path, scheme: r.Scheme,
		roll: r.Roll}
	if st.method == "" {
		st.method = "GET"
	}
	if st.method == methodConnect {
		st.path = ""
	} else if st.path == "" {
		st.path = "/"
	}
	if st.scheme == "" {
		st.scheme = "http"
		if tls {
			st.scheme = "https"
		}
	}
	st.headers = make(map[string]string, len(r.Headers))
	for _, h := range r.Headers {
		name := LowerASCII(h.Name)
		if before, twice := st.headers[name]; twice {
			st.headers[name] = before + "," + h.Value
		} else {
			st.headers[name] = h.Value
			st.names = append(st.names, name)
		}
	}
	return st
}

// internal reports whether Envoy treats the request as internal, as far as the client's address
// decides it.
func (s *stream) internal() bool {
	a := s.seen.Src.Addr()
	return a.IsPrivate() || a.IsLoopback()
}

// header returns the value of a header or pseudo-header.
func (s *stream) header(name string) (string, bool) {
	switch name = LowerASCII(name); name {
	case ":method":
		return s.method, true
	case ":authority", "host":
		return s.host, s.host != ""
	case ":path":
		return s.path, true
	case ":scheme", "x-forwarded-proto":
		return s.scheme, true
	case certificateHeader:
		if s.cleared {
			return s.certificate, s.certificate != ""
		}
	}
	v, ok := s.headers[name]
	return v, ok
}

// withoutQuery returns a path without its query and fragment.
func withoutQuery(path string) string {
	if i := strings.IndexAny(path, "?#"); i >= 0 {
		return path[:i]
	}
	return path
}

// queryValue returns the first value of a query parameter, unescaped as in the path.
func queryValue(path, name string) (string, bool) {
	_, query, _ := strings.Cut(path, "?")
	query, _, _ = strings.Cut(query, "#")
	for len(query) > 0 {
		var segment string
		segment, query, _ = strings.Cut(query, "&")
		key, value, _ := strings.Cut(segment, "=")
		if key == name {
			return value, true
		}
	}
	return "", false
}

// portStart returns the index of the colon before the port of a host, or -1.
func portStart(host string) int {
	i := strings.LastIndexByte(host, ':')
	if i < 0 || i == len(host)-1 {
		return -1
	}
	// Colons of an IPv6 address precede a port only after brackets.
	if b := strings.LastIndexByte(host, ']'); b >= 0 && i < b || b < 0 && strings.Count(host, ":") > 1 {
		return -1
	}
	for j := i + 1; j < len(host); j++ {
		if host[j] < '0' || host[j] > '9' {
			return -1
		}
	}
	return i
}

// normalizePath removes dot segments (RFC 3986, section 5.2.4) and replaces backslashes. Envoy's
// other normalizations, such as the case of escapes, make no difference here.
func normalizePath(path string) string {
	p := withoutQuery(path)
	rest := path[len(p):]
	p = strings.ReplaceAll(p, `\`, "/")
	for _, dot := range []string{"%2e", "%2E"} {
		p = strings.ReplaceAll(p, dot, ".")
	}
	if !strings.Contains(p, "/.") {
		return p + rest
	}
	var out []string
	parts := strings.Split(p, "/")
	for i, segment := range parts {
		last := i == len(parts)-1
		switch {
		case segment == "." && last, segment == ".." && last:
			if segment == ".." && len(out) > 1 {
				out = out[:len(out)-1]
			}
			out = append(out, "")
		case segment == ".":
		case segment == "..":
			if len(out) > 1 {
				out = out[:len(out)-1]
			}
		default:
			out = append(out, segment)
		}
	}
	return strings.Join(out, "/") + rest
}
