package client_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/serve/client"
)

// eventServer serves a text as the stream of events.
func eventServer(t testing.TB) (c *client.Client, serves *atomic.Pointer[string]) {
	serves = &atomic.Pointer[string]{}
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.String() != "/v1/events?mesh=m&types=ack%2Cnack" {
			http.Error(w, r.URL.String(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write([]byte(*serves.Load()))
	})}
	ended := make(chan struct{})
	go func() { _ = srv.Serve(l); close(ended) }()
	t.Cleanup(func() { _ = srv.Close(); <-ended })
	return client.New(path, 0), serves
}

func read(c *client.Client) (out []client.Event, err error) {
	err = c.Events(context.Background(), []string{"ack", "nack"}, "m", func(e client.Event) error {
		out = append(out, e)
		return nil
	})
	return out, err
}

// TestEvents reads a stream with an end, one without, and one that is not valid.
func TestEvents(t *testing.T) {
	c, serves := eventServer(t)
	text := "event: hello\ndata: {}\n\n: alive\n\nid: 7\nevent: ack\ndata: {\"name\":\"a\"}\n\n"
	whole := text + "event: end\ndata: {\"reason\":\"r\"}\n\nevent: ack\ndata: {}\n\n"
	serves.Store(&whole)
	list, err := read(c)
	if err != nil || len(list) != 3 || list[1].ID != "7" || list[1].Name != api.EventAck ||
		string(list[1].Data) != `{"name":"a"}` || list[2].Name != api.EventEnd {
		t.Errorf("%v %q", err, list)
	}
	serves.Store(&text)
	var cut *client.UnansweredError
	if list, err = read(c); !errors.As(err, &cut) || len(list) != 2 {
		t.Errorf("a stream without an end: %v %q", err, list)
	}
	bad := "event: ack\ndata: {\n\n"
	serves.Store(&bad)
	if _, err = read(c); err == nil {
		t.Error("invalid JSON is accepted")
	}
}

// FuzzEvents reads any stream: each event has a name and JSON, and nothing panics.
func FuzzEvents(f *testing.F) {
	c, serves := eventServer(f)
	for _, seed := range []string{"", "\n\n", "event: a\ndata: 1\n\n", "event:a\ndata:1\ndata:2\n\n", "id\nevent\n\n",
		"event: end\ndata: {}\n\n", "data: {}\n\nevent: x\r\ndata: 1\r\n\r\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		serves.Store(&text)
		list, err := read(c)
		for _, e := range list {
			if e.Name == "" || len(e.Data) == 0 {
				t.Errorf("an event %+v", e)
			}
		}
		if err == nil && list[len(list)-1].Name != api.EventEnd {
			t.Errorf("no error without an end: %q", text)
		}
	})
}
