package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/nearside-mesh/nearside/agent/host/certfiles"
	"github.com/nearside-mesh/nearside/agent/model/api"
)

// openEvery is the interval of attempts to open an address in use.
const openEvery = time.Second

// waitingListener is a listener whose address another process uses. Accept opens the address as
// soon as it is free.
type waitingListener struct {
	key, addr string // config key and value
	open      func(context.Context) (net.Listener, error)
	log       *slog.Logger
	closed    context.Context
	close     context.CancelFunc

	mu  sync.Mutex
	l   net.Listener // nil: not open
	err error        // of the last attempt
}

// listenOrAwait opens an address of a config key, or returns a listener that waits for an address
// in use.
func (a *Agent) listenOrAwait(ctx context.Context, key, prefix, addr string) (net.Listener, error) {
	l, err := a.listenTCP(ctx, prefix, addr)
	if err == nil {
		return l, nil
	}
	if !errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	w := &waitingListener{key: key, addr: addr, err: err, log: a.log,
		open: func(ctx context.Context) (net.Listener, error) { return a.listenTCP(ctx, prefix, addr) }}
	w.closed, w.close = context.WithCancel(context.Background())
	a.log.Error("an address is in use; the agent tries again every second", "key", key, "error", err)
	a.waiting = append(a.waiting, w)
	return w, nil
}

// Accept implements net.Listener.
func (w *waitingListener) Accept() (net.Conn, error) {
	for {
		w.mu.Lock()
		l := w.l
		w.mu.Unlock()
		if l != nil {
			return l.Accept()
		}
		select {
		case <-w.closed.Done():
			return nil, net.ErrClosed
		case <-time.After(openEvery):
			w.try()
		}
	}
}

func (w *waitingListener) try() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed.Err() != nil {
		return
	}
	if w.l, w.err = w.open(w.closed); w.err == nil {
		w.log.Info("an address that was in use is open", "key", w.key, "address", w.addr)
	}
}

// Close implements net.Listener.
func (w *waitingListener) Close() error {
	w.close()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.l == nil {
		return nil
	}
	return w.l.Close()
}

// Addr implements net.Listener. Before the address is open, it returns that of the config.
func (w *waitingListener) Addr() net.Addr {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.l == nil {
		return configuredAddr(w.addr)
	}
	return w.l.Addr()
}

// configuredAddr is a TCP address of the config.
type configuredAddr string

func (configuredAddr) Network() string  { return "tcp" }
func (a configuredAddr) String() string { return string(a) }

// listenersCheck reports addresses in use, or nothing.
func (a *Agent) listenersCheck() []api.Check {
	c := api.Check{Name: "listeners", OK: true, Degraded: true, Error: true}
	var reasons []string
	for _, w := range a.waiting {
		w.mu.Lock()
		if w.l == nil {
			reasons = append(reasons, fmt.Sprintf("%s: %v", w.key, w.err))
			if _, port, err := net.SplitHostPort(w.addr); err == nil && c.Command == "" {
				c.Command = "ss -lntp 'sport = :" + port + "'"
			}
		}
		w.mu.Unlock()
	}
	for _, s := range [...]struct {
		key   string
		certs *certfiles.Files
	}{{"ui.listen", a.pageCerts}, {"webhook.listen", a.webhookCerts}} {
		if _, err := s.certs.Current(); err != nil {
			reasons = append(reasons, fmt.Sprintf("%s: %v; correct the files", s.key, err))
			c.Command = cmp.Or(c.Command, "nearside config show")
		}
	}
	if len(reasons) == 0 {
		return nil
	}
	c.Reason = strings.Join(reasons, "; ") + "; the agent tries again every second"
	return []api.Check{c}
}
