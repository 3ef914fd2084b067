package traffictest_test

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/nearside-mesh/nearside/agent/envoy/match"
)

// opening is what a client sends first, as listener filters make it out.
type opening struct {
	first match.FirstBytes
	sni   string
	alpn  []string
	read  []byte // the bytes that it took
}

// maxOpening bounds what is read: more than a ClientHello in one record.
const maxOpening = 5 + 1<<14

// sniff reads until it is clear what the client speaks. It fails when the client sends nothing, in time or at all.
func sniff(r io.Reader) (*opening, error) {
	o := &opening{}
	chunk := make([]byte, 4096)
	for {
		n, err := r.Read(chunk)
		o.read = append(o.read, chunk[:n]...)
		if len(o.read) > 0 && (o.clear() || len(o.read) >= maxOpening) {
			return o, nil
		}
		switch {
		case err != nil && len(o.read) > 0:
			return o, nil // what came is all there is
		case err != nil:
			return nil, err
		}
	}
}

// clear says whether the bytes that were read tell what the client speaks, and takes note of it.
func (o *opening) clear() bool {
	o.first = match.PlainBytes
	const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" // RFC 9113, section 3.4
	b := o.read
	switch {
	case b[0] == 0x16: // a record with a handshake (RFC 8446, section 5.1)
		if hello := clientHello(b); hello != nil {
			o.first, o.sni, o.alpn = match.TLSHello, hello.ServerName, hello.SupportedProtos
			return true
		}
		return len(b) >= 5 && len(b) >= 5+int(b[3])<<8+int(b[4])
	case strings.HasPrefix(preface, string(b[:min(len(b), len(preface))])):
		if len(b) >= len(preface) {
			o.first = match.H2C
		}
		return len(b) >= len(preface)
	}
	line, _, whole := bytes.Cut(b, []byte("\r\n"))
	methods := []string{"GET ", "HEAD ", "POST ", "PUT ", "DELETE ", "OPTIONS ", "PATCH ", "CONNECT ", "TRACE "}
	if !slices.ContainsFunc(methods, func(m string) bool { return strings.HasPrefix(string(b), m) || strings.HasPrefix(m, string(b)) }) {
		return true
	}
	switch {
	case bytes.HasSuffix(line, []byte(" HTTP/1.1")):
		o.first = match.HTTP11
	case bytes.HasSuffix(line, []byte(" HTTP/1.0")):
		o.first = match.HTTP10
	}
	return whole
}

// clientHello reads a ClientHello, nil for none or a part of one.
func clientHello(b []byte) *tls.ClientHelloInfo {
	var out *tls.ClientHelloInfo
	_ = tls.Server(&given{r: bytes.NewReader(b)}, &tls.Config{GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		out = h
		return nil, errors.New("that is all")
	}}).Handshake()
	return out
}

// given is a connection from which certain bytes come.
type given struct {
	net.Conn
	r io.Reader
}

func (c *given) Read(b []byte) (int, error)       { return c.r.Read(b) }
func (c *given) Write(b []byte) (int, error)      { return len(b), nil }
func (c *given) SetDeadline(time.Time) error      { return nil }
func (c *given) SetReadDeadline(time.Time) error  { return nil }
func (c *given) SetWriteDeadline(time.Time) error { return nil }
func (c *given) Close() error                     { return nil }

// replayed is a connection of which the first bytes have been read already.
type replayed struct {
	net.Conn
	r    io.Reader
	seen *match.Conn // what is known of it
}

func (c *replayed) Read(b []byte) (int, error) { return c.r.Read(b) }

func (c *replayed) CloseWrite() error {
	if w, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return nil
}

// TestSniff: what a client sends first is told the same whether it comes at once or byte by byte, and nothing is lost.
func TestSniff(t *testing.T) {
	hello := helloOf(t, &tls.Config{ServerName: "api.example.com", NextProtos: []string{"h2", "own"}})
	for name, c := range map[string]struct {
		sent string
		want match.FirstBytes
	}{
		"TLS":                     {hello, match.TLSHello},
		"TLS that is cut off":     {hello[:len(hello)/2], match.PlainBytes},
		"a record that is no TLS": {"\x16\x03\x01\x00\x02ab", match.PlainBytes},
		"HTTP/1.1":                {"GET / HTTP/1.1\r\nHost: a\r\n\r\n", match.HTTP11},
		"HTTP/1.0":                {"POST /x HTTP/1.0\r\n\r\n", match.HTTP10},
		"HTTP/2":                  {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00", match.H2C},
		"half of a preface":       {"PRI * HT", match.PlainBytes},
		"a method and no version": {"GET nothing\r\n", match.PlainBytes},
		"a line":                  {"hello\n", match.PlainBytes},
		"a word like a method":    {"GETTING", match.PlainBytes},
	} {
		t.Run(name, func(t *testing.T) {
			for _, r := range []io.Reader{strings.NewReader(c.sent), iotest.OneByteReader(strings.NewReader(c.sent))} {
				got, err := sniff(r)
				if err != nil {
					t.Fatal(err)
				}
				rest, _ := io.ReadAll(r)
				want := &opening{first: c.want, read: got.read}
				if c.want == match.TLSHello {
					want.sni, want.alpn = "api.example.com", []string{"h2", "own"}
				}
				if !reflect.DeepEqual(got, want) || string(got.read)+string(rest) != c.sent {
					t.Errorf("got %+v, want %s", got, c.want)
				}
			}
		})
	}
	if _, err := sniff(strings.NewReader("")); err == nil {
		t.Error("a client that sends nothing is told to be something")
	}
}

// helloOf is the ClientHello of a client.
func helloOf(t *testing.T, c *tls.Config) string {
	t.Helper()
	var b bytes.Buffer
	_ = tls.Client(&sent{to: &b}, c).Handshake()
	return b.String()
}

// sent is a connection that takes bytes, and from which none come.
type sent struct {
	given
	to io.Writer
}

func (c *sent) Read([]byte) (int, error)    { return 0, io.EOF }
func (c *sent) Write(b []byte) (int, error) { return c.to.Write(b) }
