package changetest_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// listen returns a listener on an unused port of an address. The test closes it when it ends.
func listen(t testing.TB, address string) (l net.Listener, port int) {
	t.Helper()
	l, err := net.Listen("tcp", address+":0")
	agenttest.Do(t, err)
	t.Cleanup(func() { l.Close() })
	return l, l.Addr().(*net.TCPAddr).Port
}

// serveHTTP responds "ok" to requests, and repeats the lines of WebSockets.
func serveHTTP(t testing.TB) (port int) {
	l, port := listen(t, "127.0.0.1")
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
			_, _ = io.WriteString(w, "ok")
			return
		}
		c, buffered, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
		_, _ = io.Copy(c, buffered)
	})}
	go s.Serve(l) //nolint:errcheck // returns when the test closes the server
	t.Cleanup(func() { s.Close() })
	return port
}

// serveTCP repeats all bytes.
func serveTCP(t testing.TB) (port int) {
	l, port := listen(t, "127.0.0.1")
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	return port
}

// serveGRPC repeats the messages of every method.
func serveGRPC(t testing.TB) (port int) {
	l, port := listen(t, "127.0.0.1")
	s := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		for {
			m := &emptypb.Empty{}
			if err := stream.RecvMsg(m); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
			if err := stream.SendMsg(m); err != nil {
				return err
			}
		}
	}))
	go s.Serve(l) //nolint:errcheck // returns when the test stops the server
	t.Cleanup(s.Stop)
	return port
}

// line sends a line on a connection and expects to receive it.
func line(c net.Conn, r *bufio.Reader) error {
	if _, err := io.WriteString(c, "hello\n"); err != nil {
		return err
	}
	got, err := r.ReadString('\n')
	if err == nil && got != "hello\n" {
		err = fmt.Errorf("received %q", got)
	}
	return err
}
