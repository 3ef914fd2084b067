package httpapi_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/answer/change"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/finding"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/serve/httpapi"
)

// signs does a request and returns the answer and the signs of life that came before it.
func (a *testAPI) signs(ctx context.Context, path, body string) (got answer, signs []string, err error) {
	a.t.Helper()
	var mu sync.Mutex
	ctx = httptrace.WithClientTrace(ctx,
		&httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
			mu.Lock()
			defer mu.Unlock()
			if code == http.StatusProcessing {
				signs = append(signs, h.Get(api.ProgressHeader))
			}
			return nil
		}})
	req, err := http.NewRequestWithContext(ctx, "POST", a.base+path, strings.NewReader(body))
	if err != nil {
		a.t.Fatal(err)
	}
	req.Header.Set(api.ProgressHeader, "yes")
	resp, err := a.http.Do(req)
	mu.Lock()
	defer mu.Unlock()
	if err != nil {
		return answer{}, signs, err
	}
	defer resp.Body.Close()
	return answer{status: resp.StatusCode}, signs, nil
}

// TestLongRequests checks that long requests send progress messages. If the client disconnects, the
// work ends and the request has no effect.
func TestLongRequests(t *testing.T) {
	looked, leave := make(chan struct{}), make(chan struct{})
	ended := make(chan struct{}, 1)
	var block sync.Mutex // held: every look at a proxy waits
	a := start(t, func(o *httpapi.Options) {
		o.Limits.SignEvery = time.Nanosecond
		o.Limits.ReadTime, o.Limits.WriteTime = 200*time.Millisecond, 30*time.Second
		o.NewTry = func() change.Try {
			return func(ctx context.Context, _ *generate.Proxy) ([]finding.Finding, error) {
				if block.TryLock() {
					block.Unlock()
					return nil, nil
				}
				looked <- struct{}{}
				select {
				case <-leave:
				case <-ctx.Done():
					ended <- struct{}{}
				}
				return nil, nil
			}
		}
	})
	a.http.Timeout = 2 * time.Minute
	a.put(store.Source{Kind: store.SourceAPI}, services)
	a.reconcile()
	for _, path := range []string{"/v1/apply?dryRun=true", "/v1/diff", "/v1/apply"} {
		got, signs, err := a.signs(t.Context(), path, slow("9s"))
		if err != nil || got.status != 200 || strings.Join(signs, " ") != "1/3 2/3 3/3" {
			t.Errorf("%s: %+v, %v, %v", path, got, signs, err)
		}
	}

	// A client that disconnects while its request is being checked, after the time limit for
	// reading a request.
	block.Lock()
	ctx, giveUp := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() {
		_, _, err := a.signs(ctx, "/v1/apply", slow("11s"))
		first <- err
	}()
	<-looked
	late := time.NewTimer(400 * time.Millisecond)
	defer late.Stop()
	<-late.C
	giveUp()
	if err := <-first; err == nil {
		t.Error("the one that went away is answered")
	}
	<-ended
	block.Unlock()
	a.want(a.do("GET", "/meshes/default/meshtimeouts/t1", ""), 200, `"connectionTimeout":"9s"`)

	// While one request is being checked, another one waits and receives a message about it.
	block.Lock()
	second := make(chan answer, 1)
	go func() {
		got, _, err := a.signs(t.Context(), "/v1/apply?dryRun=true", slow("12s"))
		if err != nil {
			t.Error(err)
		}
		second <- got
	}()
	<-looked
	waits, done := context.WithCancel(t.Context())
	defer done()
	waits = httptrace.WithClientTrace(waits,
		&httptrace.ClientTrace{Got1xxResponse: func(_ int, h textproto.MIMEHeader) error {
			if h.Get(api.ProgressHeader) == api.ProgressWaits {
				done()
			}
			return nil
		}})
	req, err := http.NewRequestWithContext(waits, "POST", a.base+"/v1/diff", strings.NewReader(slow("13s")))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(api.ProgressHeader, "yes")
	if _, err := a.http.Do(req); !errors.Is(err, context.Canceled) {
		t.Errorf("the one that waits: %v", err)
	}
	block.Unlock()
	close(leave)
	if got := <-second; got.status != 200 {
		t.Errorf("the long one: %+v", got)
	}
}
