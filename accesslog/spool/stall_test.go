package spool_test

import (
	"bufio"
	"context"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nearside-mesh/nearside/accesslog/spool"
)

// TestForwardStalled checks that a collector that accepts connections and stops reading is reported
// within seconds, also over further connections, until it has read the lines. A slow collector is
// not reported.
func TestForwardStalled(t *testing.T) {
	dir := spoolDir(t)
	synctest.Test(t, func(t *testing.T) {
		dials := make(chan net.Conn, 100)
		f := newForwarder(t, spool.ForwarderOptions{Address: away, Spool: spool.Options{Dir: dir},
			Dial: func(context.Context, string, string) (net.Conn, error) {
				here, there := net.Pipe()
				dials <- there
				return here, nil
			}})
		stop := run(t, f)
		health := func(want string) {
			t.Helper()
			if h := f.Stats().Health; !strings.Contains(h, want) || want == "" && h != "" {
				t.Errorf("health %q, want %q", h, want)
			}
		}
		write(t, f, numbered(0, 1000))
		in := <-dials
		for range 10 { // slow
			time.Sleep(time.Second)
			if _, err := in.Read(make([]byte, 100)); err != nil {
				t.Fatal(err)
			}
			health("")
		}
		time.Sleep(4 * time.Second)
		health("accepts connections, but does not read")
		write(t, f, numbered(1000, 1001)) // during the stall
		time.Sleep(14 * time.Second)      // the connection is closed
		health("does not accept lines")
		<-dials
		time.Sleep(time.Second) // another connection
		health("does not accept lines")
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for conn := range dials {
				for in := bufio.NewReader(conn); ; {
					if _, err := in.ReadString('\n'); err != nil {
						break
					}
				}
			}
		}()
		time.Sleep(2 * time.Minute)
		health("")
		if s := f.Stats(); s.Written != 1001 || s.Dropped != nil {
			t.Errorf("%+v", s)
		}
		stop()
		close(dials)
		<-ended
	})
}
