package match

import (
	"strings"
)

// stream is a request as the parts of an HTTP connection manager see it.
type stream struct {
	seen *Seen
	peer *Peer
	tls  bool // the connection's TLS ends here

	method, host, path, scheme string // path with the query
	headers                    map[string]string
	names                      []string // of headers, in lower case, for messages
	roll                       uint64
	certificate                string // x-forwarded-client-cert as the connection manager makes it
	cleared                    bool   // it takes the header away that the client may have sent
	latin1                     bool   // regular expressions see bytes, as Latin-1, and not UTF-8
}

const certificateHeader = "x-forwarded-client-cert"

// newStream takes a request on a connection. Several headers of one name are joined by commas, as
// Envoy does to compare them.
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

// internal says whether Envoy takes the request to come from inside the network, as far as the
// client's address says so.
func (s *stream) internal() bool {
	a := s.seen.Src.Addr()
	return a.IsPrivate() || a.IsLoopback()
}

// header returns the value of a header, pseudo-headers among them.
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

// withoutQuery is a path without its query and fragment.
func withoutQuery(path string) string {
	if i := strings.IndexAny(path, "?#"); i >= 0 {
		return path[:i]
	}
	return path
}

// queryValue returns the first value of a query parameter, as it stands in the path.
func queryValue(path, name string) (string, bool) {
	_, query, _ := strings.Cut(path, "?")
	query, _, _ = strings.Cut(query, "#")
	for len(query) > 0 {
		var part string
		part, query, _ = strings.Cut(query, "&")
		key, value, _ := strings.Cut(part, "=")
		if key == name {
			return value, true
		}
	}
	return "", false
}

// portStart is where the port begins in a host, with its colon; -1 for none.
func portStart(host string) int {
	i := strings.LastIndexByte(host, ':')
	if i < 0 || i == len(host)-1 {
		return -1
	}
	// The colons of an IPv6 address are not before a port, unless it stands in brackets.
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

// normalizePath takes dots out of a path as RFC 3986, section 5.2.4 has it, and slashes that lean
// the other way. What else Envoy normalises, as the case of escapes, makes no difference here.
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
	for i, part := range parts {
		last := i == len(parts)-1
		switch {
		case part == "." && last, part == ".." && last:
			if part == ".." && len(out) > 1 {
				out = out[:len(out)-1]
			}
			out = append(out, "")
		case part == ".":
		case part == "..":
			if len(out) > 1 {
				out = out[:len(out)-1]
			}
		default:
			out = append(out, part)
		}
	}
	return strings.Join(out, "/") + rest
}
