package changetest_test

import (
	"fmt"
	"io"
	"net/http"
	"sync"
)

// caller is a client that sends requests through the outbound of its sidecar. Its lock is held
// while the sidecar moves, as a load balancer would send no work to the client.
type caller struct {
	sync.RWMutex
	name   string
	client *http.Client
	url    string
}

// call starts the clients. At any time, each worker uses a client that accepts work.
func (m *move) call() {
	var all []*caller
	for _, p := range m.cp.proxies {
		if p.outbound != 0 {
			c := &caller{name: p.name, client: &http.Client{Transport: &http.Transport{}, Timeout: slow},
				url: fmt.Sprintf("http://127.0.0.1:%d/", p.outbound)}
			m.x.wg.Go(func() { <-m.x.ctx.Done(); c.client.CloseIdleConnections() })
			m.callers[p.name], all = c, append(all, c)
		}
	}
	for i := range 4 {
		m.x.repeatRequest(pause, func() {
			for n := range all {
				if c := all[(i+n)%len(all)]; c.TryRLock() {
					defer c.RUnlock()
					i++
					to, err := c.get(m)
					m.x.done(c.name+" "+to, err)
					return
				}
			}
		})
	}
}

// get sends a request and returns the name of the server.
func (c *caller) get(m *move) (server string, err error) {
	req, err := http.NewRequestWithContext(m.x.ctx, http.MethodGet, c.url, nil)
	if err != nil {
		return "", err
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%d %s", resp.StatusCode, body)
	}
	return string(body), err
}
