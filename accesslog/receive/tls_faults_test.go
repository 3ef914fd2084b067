package receive

import (
	"context"
	"crypto/tls"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nearside-mesh/nearside/accesslog/accesslogtest"
)

// conns is a listener whose connections come from a channel.
type conns chan net.Conn

func (c conns) Accept() (net.Conn, error) {
	if conn, ok := <-c; ok {
		return conn, nil
	}
	return nil, net.ErrClosed
}

func (c conns) Close() error   { return nil }
func (c conns) Addr() net.Addr { return &net.UnixAddr{Name: "conns", Net: "unix"} }

// TestTLSFaults checks that senders that are silent during the TLS handshake, stop in the middle of
// it, send other bytes, or send one byte a second occupy their place only for 10 s. Refused senders
// are counted, and others are served in the meantime.
func TestTLSFaults(t *testing.T) {
	server, roots := selfSigned(t, "receiver")
	now := time.Now() // the clock below begins in 2000
	synctest.Test(t, func(t *testing.T) {
		list, to := make(conns), &accesslogtest.Collector{}
		r, err := New(Options{Listener: list, To: &locked{to: to}, MaxConns: 5,
			TLS: &tls.Config{Certificates: []tls.Certificate{server}}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()
		dial := func() net.Conn {
			here, there := net.Pipe()
			list <- there
			go func() { // the alerts of the receiver
				for b := make([]byte, 100); ; {
					if _, err := here.Read(b); err != nil {
						return
					}
				}
			}()
			return here
		}
		hello := []byte{22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3} // of 512 bytes
		silent, half, other, slow := dial(), dial(), dial(), dial()
		_, _ = half.Write(hello)
		_, _ = other.Write([]byte("GET / HTTP/1.1\r\n\r\n"))
		go func() {
			for _, b := range hello {
				if _, err := slow.Write([]byte{b}); err != nil {
					return
				}
				time.Sleep(time.Second)
			}
		}()
		synctest.Wait()
		if s := r.Stats(); s.Connections != 3 || s.Failed != 1 {
			t.Errorf("at first: %+v", s)
		}
		here, there := net.Pipe()
		list <- there
		good := tls.Client(here, &tls.Config{RootCAs: roots, ServerName: "receiver",
			Time: func() time.Time { return now }})
		if _, err := good.Write([]byte("line\n")); err != nil {
			t.Error(err)
		}
		dial() // the fifth
		dial() // above the limit
		synctest.Wait()
		if s := r.Stats(); s.Connections != 5 || s.Refused != 1 || to.String() != "line\n" {
			t.Errorf("beside a good sender: %+v, %q", s, to)
		}
		time.Sleep(11 * time.Second)
		if s := r.Stats(); s.Connections != 1 || s.Failed != 5 || s.InFlight != 0 {
			t.Errorf("after 11 s: %+v", s)
		}
		good.Close()
		silent.Close()
		cancel()
		close(list)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
