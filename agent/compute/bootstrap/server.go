package bootstrap

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"unicode/utf8"
)

// XDSAddress is the TCP address of an agent. The zero value means that no address is set.
type XDSAddress struct {
	Address string // HOST:PORT
	// CA is the absolute path of a PEM file with the CA certificates of the agent, whose certificate
	// must be valid for the host of Address. TLS is off if CA is empty.
	CA string
	// Cert and Key are the absolute paths of PEM files with the Envoy's own certificate and private
	// key; set both or neither.
	Cert, Key string
}

// maxToken is the maximum length of a token in bytes.
const maxToken = 8 << 10

// checkToken rejects a token that is not three dot-separated parts of base64url. Envoy would
// substitute text between percent signs in a header, which a valid token does not contain. The
// error does not quote the token.
func checkToken(token string) error {
	allowed := func(r rune) bool {
		return r == '.' || r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
	}
	switch {
	case token == "":
		return nil
	case len(token) > maxToken:
		return fmt.Errorf("token: %d bytes, at most %d are allowed", len(token), maxToken)
	case strings.Count(token, ".") != 2 || strings.ContainsFunc(token, func(r rune) bool { return !allowed(r) }):
		return errors.New("token: want three parts of letters, digits, '-' and '_' with dots between, " +
			"as nearside token create makes it")
	}
	return nil
}

// xdsServer is the validated address of the agent.
type xdsServer struct {
	socket string // or an address
	host   string
	ip     bool // the host is an IP address
	port   uint16
	tls    XDSAddress
}

func (o *Options) xdsServer() (xdsServer, error) {
	a := o.XDSAddress
	switch {
	case o.XDSSocket != "" && a.Address != "":
		return xdsServer{}, errors.New("path of the xDS socket and address of the xDS server: keep one")
	case o.XDSSocket == "" && a.Address == "":
		return xdsServer{}, errors.New("path of the xDS socket: required")
	case a.Address == "" && a != (XDSAddress{}):
		return xdsServer{},
			errors.New("certificates of the xDS server: they take its address, as TLS is not spoken over a socket")
	case a.Address == "":
		return xdsServer{socket: o.XDSSocket}, checkSocketPath("xDS", o.XDSSocket)
	}
	s := xdsServer{tls: a}
	host, port, err := net.SplitHostPort(a.Address)
	n, portErr := strconv.ParseUint(port, 10, 16)
	if err != nil || portErr != nil || n == 0 || !validHost(host) {
		return s, fmt.Errorf("address of the xDS server %q: want HOST:PORT, such as 192.0.2.1:15443 or [2001:db8::1]:15443",
			a.Address)
	}
	s.host, s.port = host, uint16(n)
	if ip, err := netip.ParseAddr(host); err == nil {
		s.ip, s.host = true, ip.String() // as Envoy formats the addresses in certificates
		if ip.Zone() != "" || ip.IsUnspecified() {
			return s, fmt.Errorf("address of the xDS server %q: want an address that can be dialed, without a zone", a.Address)
		}
	}
	var faults []error
	if (a.Cert == "") != (a.Key == "") {
		faults = append(faults, errors.New("certificate of the Envoy: it takes its private key, and the key its certificate"))
	}
	if a.Cert != "" && a.CA == "" {
		faults = append(faults, errors.New("certificate of the Envoy: it is shown in TLS only, "+
			"which takes the authorities (CA) of the agent's certificate"))
	}
	for _, f := range [...]struct{ what, path string }{
		{"authorities of the xDS server", a.CA}, {"certificate of the Envoy", a.Cert}, {"private key of the Envoy", a.Key},
	} {
		if f.path != "" && (!strings.HasPrefix(f.path, "/") || !utf8.ValidString(f.path) || strings.ContainsRune(f.path, 0)) {
			faults = append(faults,
				fmt.Errorf("%s %q: want the absolute path of a file, as Envoy may run in another directory", f.what, f.path))
		}
	}
	return s, errors.Join(faults...)
}

// validHost reports whether a text is an IP address or consists of host name characters.
func validHost(host string) bool {
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	return host != "" && len(host) <= 253 &&
		strings.Trim(host, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._") == ""
}

// write writes the cluster after its name.
func (s xdsServer) write(b *bytes.Buffer) {
	if s.socket != "" {
		fmt.Fprintf(b, socketText, yamlString(s.socket))
		return
	}
	kind := "LOGICAL_DNS\n    dns_lookup_family: ALL" // Envoy tries every address of the name
	if s.ip {
		kind = "STATIC"
	}
	fmt.Fprintf(b, addressText, kind, yamlString(s.host), s.port)
	if s.tls.CA == "" {
		return
	}
	san := "DNS"
	if s.ip {
		san = "IP_ADDRESS"
	}
	b.WriteString(tlsText)
	if !s.ip { // a server name is never an address (RFC 6066, section 3)
		fmt.Fprintf(b, "        sni: %s\n", yamlString(s.host))
	}
	fmt.Fprintf(b, trustText, yamlString(s.tls.CA), san, yamlString(s.host))
	if s.tls.Cert != "" {
		fmt.Fprintf(b, certificateText, yamlString(s.tls.Cert), yamlString(s.tls.Key))
	}
}

const (
	socketText = `    type: STATIC
    connect_timeout: 1s
    load_assignment:
      cluster_name: nearside-xds
      endpoints:
      - lb_endpoints:
        - endpoint:
            address:
              pipe:
                path: %s
`
	addressText = `    type: %s
    connect_timeout: 5s
    load_assignment:
      cluster_name: nearside-xds
      endpoints:
      - lb_endpoints:
        - endpoint:
            address:
              socket_address:
                address: %s
                port_value: %d
`
	tlsText = `    transport_socket:
      name: envoy.transport_sockets.tls
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
`
	trustText = `        common_tls_context:
          alpn_protocols: [h2]
          validation_context:
            trusted_ca:
              filename: %s
            match_typed_subject_alt_names:
            - san_type: %s
              matcher:
                exact: %s
`
	certificateText = `          tls_certificates:
          - certificate_chain:
              filename: %s
            private_key:
              filename: %s
`
)
