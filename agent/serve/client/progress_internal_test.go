package client

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/api"
)

// once is a listener of one connection in memory, so that the time of a test can be fake.
type once struct{ conns chan net.Conn }

func (l once) Accept() (net.Conn, error) {
	if c, ok := <-l.conns; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (l once) Close() error   { close(l.conns); return nil }
func (l once) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

// TestSignsOfLife checks that a call can exceed its timeout while the agent sends progress
// responses.
func TestSignsOfLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		l := once{make(chan net.Conn, 1)}
		l.conns <- there
		srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get(api.ProgressHeader) == "" {
				t.Error("no signs of life are asked for")
			}
			for _, sign := range []string{api.ProgressWaits, "1/40", "2/40", "what", "4/40", "5/40", "6/40", "7/40"} {
				w.Header().Set(api.ProgressHeader, sign)
				w.WriteHeader(http.StatusProcessing)
				time.Sleep(100 * time.Millisecond) // fake
			}
			fmt.Fprint(w, `{"changes":[]}`)
		})}
		ended := make(chan struct{})
		go func() { defer close(ended); _ = srv.Serve(l) }()
		c := New("pipe", 700*time.Millisecond)
		c.http.Transport = c.transport(func(context.Context, *net.Dialer, string) (net.Conn, error) { return here, nil })
		var reported []string
		c.Progress = func(done, all int) { reported = append(reported, fmt.Sprintf("%d/%d", done, all)) }
		begun := time.Now()
		if _, err := c.Apply(t.Context(), []byte("{}"), true, "items", "patch"); err != nil {
			t.Error(err)
		}
		if elapsed := time.Since(begun); elapsed != 800*time.Millisecond {
			t.Errorf("the call took %s", elapsed)
		}
		if got := strings.Join(reported, " "); got != "0/0 1/40 2/40 4/40 5/40 6/40 7/40" {
			t.Errorf("told %s", got)
		}
		srv.Close()
		<-ended
	})
}
