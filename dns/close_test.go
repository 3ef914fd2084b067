package dns

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// slowListener is closed only some time after Accept has failed, as a socket can be on a busy
// machine.
type slowListener struct {
	net.Listener
	closing, release chan struct{}
	begun, closed    atomic.Bool
}

func (l *slowListener) Accept() (net.Conn, error) { <-l.closing; return nil, net.ErrClosed }
func (l *slowListener) Addr() net.Addr            { return &net.TCPAddr{} }

// Close waits only in the first call, as that of [net.TCPListener].
func (l *slowListener) Close() error {
	if l.begun.Swap(true) {
		return net.ErrClosed
	}
	close(l.closing)
	<-l.release
	l.closed.Store(true)
	return nil
}

// TestListenerIsClosedAtTheEnd checks that the address of a server is free when it has ended.
func TestListenerIsClosedAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &slowListener{closing: make(chan struct{}), release: make(chan struct{})}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan bool, 1)
		go func() {
			if err := NewServer(ServerOptions{}).ServeTCP(ctx, l); err != nil {
				t.Error(err)
			}
			ended <- l.closed.Load()
		}()
		synctest.Wait()
		cancel()
		synctest.Wait()
		close(l.release)
		if !<-ended {
			t.Error("the server has ended before its listener was closed")
		}
	})
}
