package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// request sends one request with the next number and returns the number.
func (w *logging) request(c *http.Client, tag, path string) (int64, error) {
	w.mu.Lock()
	n, port := w.sent.Add(1), w.port
	w.open[n] = true
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		delete(w.open, n)
		w.mu.Unlock()
	}()
	if w.other != 0 && n%2 == 0 {
		port = w.other
	}
	req, err := http.NewRequestWithContext(w.t.Context(), "GET", fmt.Sprintf("http://127.0.0.1:%d%s", port, path), nil)
	if err != nil {
		return n, err
	}
	req.Header.Set("X-Seq", fmt.Sprintf("%s%d", tag, n))
	resp, err := c.Do(req)
	if err != nil {
		return n, err
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return n, fmt.Errorf("status %d", resp.StatusCode)
	}
	return n, nil
}

// requests sends n requests as fast as possible and fails the test if one fails.
func (w *logging) requests(tag string, n int) {
	w.t.Helper()
	var all sync.WaitGroup
	var failed atomic.Pointer[error]
	for piece := range 4 {
		all.Go(func() {
			c := &http.Client{Transport: &http.Transport{}}
			defer c.CloseIdleConnections()
			for i := piece; i < n; i += 4 {
				if _, err := w.request(c, tag, "/"); err != nil {
					failed.Store(&err)
					return
				}
			}
		})
	}
	all.Wait()
	if err := failed.Load(); err != nil {
		w.t.Fatalf("a request failed: %v", *err)
	}
}

// load sends requests at a rate until stop is called. stop returns the number of requests.
func (w *logging) load(tag string, perSecond int) (stop func() int64) {
	ctx, cancel := context.WithCancel(w.t.Context())
	var all sync.WaitGroup
	var failed atomic.Pointer[error]
	due := make(chan struct{}, perSecond)
	all.Go(func() {
		t := time.NewTicker(10 * time.Millisecond)
		defer t.Stop()
		for {
			select {
			case <-ctx.Done():
				close(due)
				return
			case <-t.C:
				for range perSecond / 100 {
					select {
					case due <- struct{}{}:
					default: // this machine is too slow for the rate
					}
				}
			}
		}
	})
	for range 4 {
		all.Go(func() {
			c := &http.Client{Transport: &http.Transport{}}
			defer c.CloseIdleConnections()
			for range due {
				if _, err := w.request(c, tag, "/"); err != nil {
					failed.Store(&err)
				}
			}
		})
	}
	return func() int64 {
		cancel()
		all.Wait()
		if err := failed.Load(); err != nil {
			w.t.Errorf("a request failed: %v", *err)
		}
		return w.sent.Load()
	}
}

// answered waits until all requests sent so far are answered, and returns the number of the last.
func (w *logging) answered() int64 {
	w.t.Helper()
	last := w.sent.Load()
	w.await(fmt.Sprintf("%d requests are answered", last), func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		for n := range w.open {
			if n <= last {
				return false
			}
		}
		return true
	})
	return last
}

// more waits for n more requests.
func (w *logging) more(n int64) {
	w.t.Helper()
	until := w.sent.Load() + n
	w.await(fmt.Sprintf("%d requests more", n), func() bool { return w.sent.Load() >= until })
}

// lines returns the lines of a rotated file and its backups.
func (w *logging) lines(name string) []string {
	w.t.Helper()
	stem := strings.TrimSuffix(name, ".log")
	paths, err := filepath.Glob(w.dir + "/logs/" + stem + "*")
	agenttest.Do(w.t, err)
	var out []string
	slices.Sort(paths)
	for _, p := range paths {
		b, err := os.ReadFile(p)
		if errors.Is(err, fs.ErrNotExist) { // it was rotated meanwhile and has another name
			return w.lines(name)
		}
		agenttest.Do(w.t, err)
		for line := range strings.Lines(string(b)) {
			out = append(out, line)
		}
	}
	return out
}

// whole counts the request numbers in the lines of a tag, and returns incomplete lines in torn.
func whole(lines []string, tag string) (numbers map[int64]int, torn []string) {
	numbers = map[int64]int{}
	for _, line := range lines {
		rest, ok := strings.CutPrefix(line, tag)
		seq, _, _ := strings.Cut(rest, " ")
		n, err := strconv.ParseInt(seq, 10, 64)
		if !ok || err != nil || !strings.HasSuffix(line, " "+filler+" $\n") || strings.Count(line, "$") != 1 {
			torn = append(torn, line)
			continue
		}
		numbers[n]++
	}
	return numbers, torn
}

// exactlyOnce waits until all lines in a range of numbers exist, each once, and none is incomplete.
func (w *logging) exactlyOnce(name, tag string, from, to int64) {
	w.t.Helper()
	var numbers map[int64]int
	var torn []string
	missing := func() (n int) {
		for i := from; i <= to; i++ {
			if numbers[i] == 0 {
				n++
			}
		}
		return n
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(agenttest.Patience)
	inWork := func(line string) bool { return !strings.HasSuffix(line, "\n") } // being written
	for {
		if numbers, torn = whole(w.lines(name), tag); missing() == 0 && !slices.ContainsFunc(torn, inWork) {
			break
		}
		select {
		case <-tick.C:
			continue
		case <-limit:
		}
		break
	}
	twice := 0
	for _, n := range numbers {
		if n > 1 {
			twice++
		}
	}
	if n := missing(); n > 0 || twice > 0 || len(torn) > 0 {
		w.t.Errorf("of the lines %d to %d are missing %d, more than once %d, torn %d: %.300q",
			from, to, n, twice, len(torn), torn)
	}
}

// gauge reads a statistic of the Envoy.
func (w *logging) gauge(name string) int64 {
	w.t.Helper()
	_, body := w.envoy.Admin("/stats?filter=^" + name + "$")
	_, text, _ := strings.Cut(strings.TrimSpace(body), ": ")
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		w.t.Fatalf("%s: %q", name, body)
	}
	return n
}
