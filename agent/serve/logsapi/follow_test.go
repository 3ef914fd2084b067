package logsapi_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// followed is a request that follows logs.
type followed struct {
	lines io.Reader
	end   func()
	done  chan *api.Error
}

// pipe is a response whose body can be read while it grows.
type pipe struct {
	*httptest.ResponseRecorder
	w *io.PipeWriter
}

func (p pipe) Write(b []byte) (int, error) { return p.w.Write(b) }

func (w world) follow(query string, may func(string, resource.Key) bool) followed {
	ctx, cancel := context.WithCancel(context.Background())
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/v1/logs?follow=true&"+query, nil)
	in, out := io.Pipe()
	x := followed{in, cancel, make(chan *api.Error, 1)}
	go func() {
		x.done <- w.logs.Serve(pipe{httptest.NewRecorder(), out}, r, may)
		out.Close()
	}()
	return x
}

// next returns the next bytes of the answer.
func (x followed) next(t *testing.T) string {
	t.Helper()
	b := make([]byte, 4096)
	n, err := x.lines.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	return string(b[:n])
}

func (w world) append(t *testing.T, file, text string) {
	t.Helper()
	f, err := os.OpenFile(w.dir+"/"+file+".log", os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString(text + "\n")
	}
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
}

// TestFollow follows the logs of a dataplane: lines arrive when they are written, and the answer
// ends with the permission, the limit, or the time.
func TestFollow(t *testing.T) {
	for _, c := range []struct{ name, query, end string }{
		{"permission", "", `"more":"changed"`},
		{"limit", "limit=1&", `"more":"limit"`},
		{"time", "", `"more":"time"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, nil)
			synctest.Test(t, func(t *testing.T) {
				var permitted atomic.Bool
				permitted.Store(true)
				x := w.follow(c.query+"mesh=default&dataplane=web&since=1m", func(v string, k resource.Key) bool {
					return permitted.Load() && senders["web"](v, k)
				})
				defer x.end()
				synctest.Wait()
				w.append(t, "web", `{"start_time":"2026-11-23T10:30:01Z","path":"/new"}`)
				if got := x.next(t); !strings.Contains(got, `"/new"`) || strings.Contains(got, `"/a"`) {
					t.Fatalf("the first line is %s", got)
				}
				w.append(t, "pay", `{"start_time":"2026-11-23T10:30:02Z","path":"/secret"}`)
				if c.name == "permission" {
					permitted.Store(false)
				}
				if c.name == "limit" {
					w.append(t, "web", `{"start_time":"2026-11-23T10:30:03Z","path":"/beyond"}`)
				}
				begin := time.Now()
				if got := x.next(t); !strings.Contains(got, c.end) || strings.Contains(got, "/secret") {
					t.Errorf("the end is %s", got)
				}
				if d := time.Since(begin); c.name == "permission" && d > 3*time.Second {
					t.Errorf("the answer ended after %v", d)
				}
				if e := <-x.done; e != nil {
					t.Error(e)
				}
			})
		})
	}
}

// TestFollowers checks that clients that follow logs are limited, and that each one that ends makes
// room for another.
func TestFollowers(t *testing.T) {
	w := newWorld(t, nil)
	synctest.Test(t, func(t *testing.T) {
		var all []followed
		for range 8 {
			all = append(all, w.follow("", senders["all"]))
		}
		synctest.Wait()
		if e := <-w.follow("", senders["all"]).done; e == nil || e.Status != http.StatusTooManyRequests {
			t.Errorf("the ninth client: %v", e)
		}
		if status, body := w.ask(t, "all", ""); status != http.StatusOK {
			t.Errorf("a query: %d %s", status, body)
		}
		for _, x := range all {
			x.end()
			rest, _ := io.ReadAll(x.lines)
			if !strings.Contains(string(rest), `"end":{`) {
				t.Errorf("the answer ends with %s", rest)
			}
			<-x.done
		}
		x := w.follow("", senders["all"])
		synctest.Wait()
		x.end()
		_, _ = io.ReadAll(x.lines)
		if e := <-x.done; e != nil {
			t.Errorf("a later client: %v", e)
		}
	})
}
