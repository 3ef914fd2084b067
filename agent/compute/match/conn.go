package match

import "net/netip"

// FirstBytes says what the client of a connection sends first, which is all that listener filters
// can go by.
type FirstBytes uint8

const (
	PlainBytes  FirstBytes = iota // bytes of a protocol of its own: neither TLS nor HTTP
	TLSHello                      // a TLS ClientHello
	HTTP10                        // an HTTP/1.0 request line
	HTTP11                        // an HTTP/1.1 request line
	H2C                           // the connection preface of HTTP/2 without TLS (RFC 9113, section 3.3)
	ServerFirst                   // nothing: the client waits for the server to speak, as with MySQL and SMTP
)

// String names it as in the flags of the commands.
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

// Conn is a connection as its client opens it. What an Envoy sees of it depends on the listener
// filters that run.
type Conn struct {
	Dst netip.AddrPort // what the client dialled; SO_ORIGINAL_DST of a redirected connection
	Src netip.AddrPort // the client; what a PROXY protocol header names, where a listener reads one
	// DirectSrc is the peer of the socket; the zero value stands for Src.
	DirectSrc netip.AddrPort
	// Entry is the socket that the kernel hands the connection to, as the port of a redirection; the
	// zero value stands for Dst: nothing redirects.
	Entry netip.AddrPort
	First FirstBytes
	// Within is what a client of TLS sends first inside of it, for filter chains that terminate TLS;
	// PlainBytes where that is not known.
	Within FirstBytes
	SNI    string   // of a TLS client, in any case; "" for none
	ALPN   []string // of a TLS client, the preferred first
	// Local is true where the client is known to be on the same host, whatever the addresses say.
	Local bool
	// Peer is what the client's certificate says, nil where it shows none.
	Peer *Peer
}

// Peer is who a client's certificate says it is.
type Peer struct {
	URIs    []string // SANs of type URI, as a SPIFFE ID
	DNS     []string // SANs of type DNS
	Subject string   // as RFC 2253 writes it
}

// direct is the peer of the socket.
func (c *Conn) direct() netip.AddrPort {
	if c.DirectSrc.IsValid() {
		return c.DirectSrc
	}
	return c.Src
}

// entry is the socket that the connection arrives at.
func (c *Conn) entry() netip.AddrPort {
	if c.Entry.IsValid() {
		return c.Entry
	}
	return c.Dst
}

// Header is one header of a request.
type Header struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Request is an HTTP request on a connection.
type Request struct {
	Method  string // "" stands for GET
	Host    string // Host or :authority, with its port where the client sends one
	Path    string // with the query; "" stands for /
	Scheme  string // "" stands for http, or https on TLS
	Headers []Header
	// Roll is the number that Envoy draws for a request, which decides between weighted clusters and
	// about fractions; explanations list all clusters whatever it is.
	Roll uint64
}
