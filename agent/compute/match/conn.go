package match

import "net/netip"

// FirstBytes is what the client of a connection sends first. Listener filters see nothing else.
type FirstBytes uint8

const (
	PlainBytes  FirstBytes = iota // another protocol: neither TLS nor HTTP
	TLSHello                      // a TLS ClientHello
	HTTP10                        // an HTTP/1.0 request line
	HTTP11                        // an HTTP/1.1 request line
	H2C                           // the connection preface of HTTP/2 without TLS (RFC 9113, section 3.3)
	ServerFirst                   // nothing: the client waits for the server, as with MySQL and SMTP
)

// String returns the name that command flags use.
func (f FirstBytes) String() string {
	switch f {
	case PlainBytes:
		return "plain"
	case TLSHello:
		return "tls"
	case HTTP10:
		return "http1.0"
	case HTTP11:
		return "http1.1"
	case H2C:
		return "h2c"
	case ServerFirst:
		return "server-first"
	}
	return "unknown"
}

// Conn is a connection as the client opens it. The active listener filters decide how much of it
// Envoy sees.
type Conn struct {
	Dst netip.AddrPort // the dialed address; SO_ORIGINAL_DST of a redirected connection
	Src netip.AddrPort // the client's address, or that in the PROXY protocol header if the listener reads one
	// DirectSrc is the peer of the socket. The zero value means Src.
	DirectSrc netip.AddrPort
	// Entry is the socket that accepts the connection, for example the redirection port. The zero
	// value means Dst, without redirection.
	Entry netip.AddrPort
	First FirstBytes
	// Within is what a TLS client sends first inside TLS, for chains that terminate TLS. It is
	// PlainBytes if unknown.
	Within FirstBytes
	SNI    string   // of a TLS client, in any case, or ""
	ALPN   []string // of a TLS client, preferred first
	// Local is true if the client is known to be on the same host, regardless of addresses.
	Local bool
	// Peer is the identity in the client's certificate, or nil without a certificate.
	Peer *Peer
}

// Peer is the identity in a client's certificate.
type Peer struct {
	URIs    []string // SANs of type URI, such as a SPIFFE ID
	DNS     []string // SANs of type DNS
	Subject string   // in the form of RFC 2253
}

// direct returns the peer of the socket.
func (c *Conn) direct() netip.AddrPort {
	if c.DirectSrc.IsValid() {
		return c.DirectSrc
	}
	return c.Src
}

// entry returns the socket that accepts the connection.
func (c *Conn) entry() netip.AddrPort {
	if c.Entry.IsValid() {
		return c.Entry
	}
	return c.Dst
}

// Header is a request header.
type Header struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Request is an HTTP request on a connection.
type Request struct {
	Method  string // "" means GET
	Host    string // Host or :authority, with the port if the client sends one
	Path    string // with the query; "" means /
	Scheme  string // "" means http, or https on TLS
	Headers []Header
	// Roll is Envoy's random number for a request. It selects weighted clusters and decides fractions.
	// Explanations list all clusters regardless of it.
	Roll uint64
}
