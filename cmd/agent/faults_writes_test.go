package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
)

func unixHTTP(socket string) *http.Client {
	return &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", socket)
		}}}
}

// hammer writes meshes through the API, the same ones repeatedly, until the agent is gone. It
// returns the number of the last acknowledged write of each mesh.
func hammer(d *daemon, writers int, enough func(n int)) map[string]int {
	acknowledged := map[string]int{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for w := range writers {
		api := d.api()
		wg.Go(func() {
			for i := 0; ; i++ {
				name := fmt.Sprintf("m-%d-%d", w, i%5)
				doc := fmt.Sprintf("{type: Mesh, name: %s, labels: {n: \"%d\"}}", name, i)
				if _, err := api.Apply(context.Background(), []byte(doc), false); err != nil {
					return
				}
				mu.Lock()
				acknowledged[name] = i
				n := i*writers + w
				mu.Unlock()
				enough(n)
			}
		})
	}
	wg.Wait()
	return acknowledged
}

// holds checks that an agent has the acknowledged writes, or the write after that, which was in
// flight.
func (d *daemon) holds(acknowledged map[string]int) {
	d.t.Helper()
	for name, n := range acknowledged {
		it, err := d.api().Get(d.t.Context(), "mesh", "", name)
		if err != nil {
			d.t.Errorf("write %d of %s was acknowledged: %v", n, name, err)
			continue
		}
		if !bytes.Contains(it.Resource, fmt.Appendf(nil, `"n":"%d"`, n)) &&
			!bytes.Contains(it.Resource, fmt.Appendf(nil, `"n":"%d"`, n+5)) {
			d.t.Errorf("write %d of %s was acknowledged, and it is now %s", n, name, it.Resource)
		}
		h, err := d.api().History(d.t.Context(), "mesh", "", name)
		if err != nil {
			d.t.Errorf("history of %s: %v", name, err)
			continue
		}
		for i := 1; i < len(h.Items); i++ {
			if h.Items[i].Revision <= h.Items[i-1].Revision {
				d.t.Errorf("history of %s is not in order: %+v", name, h.Items)
			}
		}
		if last := h.Items[len(h.Items)-1].Revision; last != it.Meta.Revision {
			d.t.Errorf("history of %s ends at %d, the mesh is at %d", name, last, it.Meta.Revision)
		}
	}
}

// TestKillDuringWrites kills the agent while clients write. After a restart, acknowledged writes
// must exist with their history, and the socket files of the killed agent must be replaced.
func TestKillDuringWrites(t *testing.T) {
	t.Parallel()
	dir := quickTemp(t)
	rounds := 30
	if testing.Short() {
		rounds = 5
	}
	for round := range rounds {
		d := start(t, dir)
		var once sync.Once
		acknowledged := hammer(d, 3, func(n int) {
			if n > 10+round {
				once.Do(func() { _ = d.cmd.Process.Kill() })
			}
		})
		<-d.ended
		if _, err := os.Lstat(d.socket()); err != nil {
			t.Fatalf("a killed agent has left no socket: %v", err)
		}
		d = start(t, dir)
		d.holds(acknowledged)
		if strings.Contains(d.logged(), "level=ERROR") || t.Failed() {
			t.Fatalf("round %d:\n%s", round, d.logged())
		}
		if code := d.end(syscall.SIGTERM); code != 0 {
			t.Fatalf("exit code %d", code)
		}
	}
}

// TestTermDuringWrites checks that SIGTERM while clients write shuts the agent down cleanly.
func TestTermDuringWrites(t *testing.T) {
	t.Parallel()
	dir := quickTemp(t)
	d := start(t, dir)
	var once sync.Once
	acknowledged := hammer(d, 3, func(n int) {
		if n > 60 {
			once.Do(func() { _ = d.cmd.Process.Signal(syscall.SIGTERM) })
		}
	})
	<-d.ended
	if d.err != nil {
		t.Errorf("after SIGTERM: %v", d.err)
	}
	for _, s := range []string{d.socket(), d.xds()} {
		if _, err := os.Lstat(s); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is still there: %v", s, err)
		}
	}
	start(t, dir).holds(acknowledged)
}
