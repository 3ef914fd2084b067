package httpapi_test

import (
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"

	"github.com/nearside-mesh/nearside/agent/serve/events"
	"github.com/nearside-mesh/nearside/agent/serve/httpapi"
)

// BenchmarkEventSource is the time that an event takes from its source, which holds a lock: with
// readers it must not depend on their number.
func BenchmarkEventSource(b *testing.B) {
	for _, readers := range []int{0, 1, 50} {
		b.Run(fmt.Sprintf("readers=%d", readers), func(b *testing.B) {
			hub := &events.Hub{}
			a := start(b, func(o *httpapi.Options) { o.Events = hub })
			a.http.Timeout = 0
			var wg sync.WaitGroup
			var bodies []io.Closer
			for range readers {
				resp, err := a.http.Get(a.base + "/v1/events?types=ack")
				if err != nil || resp.StatusCode != http.StatusOK {
					b.Fatal(resp, err)
				}
				bodies = append(bodies, resp.Body)
				wg.Go(func() { _, _ = io.Copy(io.Discard, resp.Body) }) // until it is closed
			}
			event := recorded("ack", "default", "web")
			for b.Loop() {
				hub.Recorded(event)
			}
			for _, body := range bodies {
				_ = body.Close()
			}
			wg.Wait()
		})
	}
}
