package changetest_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// pause is the time between two requests of one client.
const pause = 4 * time.Millisecond

// slow is the longest time that a request may take, also on a machine that stalls for some seconds.
const slow = 30 * time.Second

// traffic sends requests until stop, which waits for those in progress. Each client uses one
// connection as long as it lasts.
type traffic struct {
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	drain  time.Duration

	mu       sync.Mutex
	ending   bool // no request begins
	open     int  // requests in progress
	closed   *sync.Cond
	requests map[string]int
	failures []failure
	drained  map[string]int // streams that have ended after the drain time
	changes  []change
	updates  []update // of listeners by any Envoy
	ends     []failure
}

// change is a change of resources under traffic.
type change struct {
	at   time.Time
	what string
}

// update is an update of listeners: the last observation before, and the first one after.
type update struct{ before, after time.Time }

// failure is a failed request or a stream that has ended too early.
type failure struct {
	at        time.Time
	kind, why string
}

func newTraffic(t testing.TB, drain time.Duration) *traffic {
	ctx, cancel := context.WithCancel(context.Background())
	x := &traffic{ctx: ctx, cancel: cancel, drain: drain, requests: map[string]int{}, drained: map[string]int{}}
	x.closed = sync.NewCond(&x.mu)
	t.Cleanup(x.stop)
	return x
}

func (x *traffic) stop() {
	x.mu.Lock()
	x.ending = true
	for x.open > 0 {
		x.closed.Wait()
	}
	x.mu.Unlock()
	x.cancel()
	x.wg.Wait()
}

// note records the start of a change.
func (x *traffic) note(what string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.changes = append(x.changes, change{time.Now(), what})
}

// before returns the last changes before a time.
func (x *traffic) before(at time.Time, n int) (out []string) {
	for i := len(x.changes) - 1; i >= 0 && len(out) < n; i-- {
		if c := x.changes[i]; !c.at.After(at) {
			out = append(out, fmt.Sprintf("%d ms after %s", at.Sub(c.at).Milliseconds(), c.what))
		}
	}
	for _, u := range x.updates {
		if late := at.Sub(u.before) - x.drain; late > -x.drain/10 && late < x.drain/5 {
			out = append(out, fmt.Sprintf("an Envoy updated listeners %d ms before", at.Sub(u.before).Milliseconds()))
		}
	}
	return out
}

func (x *traffic) done(kind string, err error) {
	if x.ctx.Err() != nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.requests[kind]++
	if err != nil {
		x.failures = append(x.failures, failure{time.Now(), kind, err.Error()})
	}
}

// ended records the end of a stream. [traffic.countEnds] decides whether it is a failure.
func (x *traffic) ended(kind string, began time.Time, err error) {
	if x.ctx.Err() != nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	now := time.Now()
	x.ends = append(x.ends, failure{now, kind, fmt.Sprintf("ended after %d ms: %v", now.Sub(began).Milliseconds(), err)})
}

// countEnds counts the ended streams. An end is a failure unless an Envoy has updated a listener
// the drain time ago. After a pause of the machine, the update may be observed after the end.
func (x *traffic) countEnds() {
	for _, e := range x.ends {
		if slices.ContainsFunc(x.updates, func(u update) bool {
			return !e.at.Before(u.before.Add(x.drain)) && e.at.Before(u.after.Add(x.drain+2*time.Second))
		}) {
			x.drained[e.kind]++
		} else {
			x.failures = append(x.failures, e)
		}
	}
	x.ends = nil
}

// await waits until each kind of traffic has passed.
func (x *traffic) await(t testing.TB) {
	t.Helper()
	agenttest.Eventually(t, "all kinds of traffic have passed", func() bool {
		x.mu.Lock()
		defer x.mu.Unlock()
		return x.requests["HTTP"] > 20 && x.requests["gRPC"] > 20 && x.requests["TCP"] > 20 && x.requests["WebSocket"] > 20
	})
}

// repeat calls f with pauses until stop.
func (x *traffic) repeat(every time.Duration, f func()) {
	x.wg.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for x.ctx.Err() == nil {
			f()
			select {
			case <-tick.C:
			case <-x.ctx.Done():
			}
		}
	})
}

// repeatRequest is repeat for a function that sends one request.
func (x *traffic) repeatRequest(every time.Duration, send func()) {
	count := func(n int) bool {
		x.mu.Lock()
		defer x.mu.Unlock()
		if n > 0 && x.ending {
			return false
		}
		x.open += n
		x.closed.Broadcast()
		return true
	}
	x.repeat(every, func() {
		if count(1) {
			defer count(-1)
			send()
		}
	})
}

// http sends GET requests.
func (x *traffic) http(kind string, port, clients int) {
	for range clients {
		transport := &http.Transport{}
		client := &http.Client{Transport: transport, Timeout: slow}
		x.wg.Go(func() { <-x.ctx.Done(); transport.CloseIdleConnections() })
		x.repeatRequest(pause, func() {
			req, err := http.NewRequestWithContext(x.ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/", port), nil)
			if err != nil {
				panic(err)
			}
			resp, err := client.Do(req)
			if err == nil {
				var body []byte
				if body, err = io.ReadAll(resp.Body); err == nil && (resp.StatusCode != http.StatusOK || string(body) != "ok") {
					err = fmt.Errorf("%d %s %s", resp.StatusCode, body, resp.Header.Get("x-envoy-response-flags"))
				}
				resp.Body.Close()
			}
			x.done(kind, err)
		})
	}
}

// grpc sends calls, and messages on a stream.
func (x *traffic) grpc(t testing.TB, port int) {
	conn, err := grpc.NewClient(fmt.Sprintf("127.0.0.1:%d", port),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	x.wg.Go(func() { <-x.ctx.Done(); conn.Close() })
	x.repeatRequest(pause, func() {
		ctx, cancel := context.WithTimeout(x.ctx, slow)
		defer cancel()
		x.done("gRPC", conn.Invoke(ctx, "/test.Test/Call", &emptypb.Empty{}, &emptypb.Empty{}))
	})
	x.repeat(pause, func() {
		began := time.Now()
		s, err := conn.NewStream(x.ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/test.Test/Stream")
		messages := 0
		for tick := time.NewTicker(10 * pause); err == nil; <-tick.C {
			if err = s.SendMsg(&emptypb.Empty{}); err == nil {
				err = s.RecvMsg(&emptypb.Empty{})
			}
			messages++
		}
		x.finish("gRPC stream", began, messages, err)
	})
}

// finish records the end of a stream: a failed request if it has ended before its first response.
func (x *traffic) finish(kind string, began time.Time, messages int, err error) {
	if messages <= 1 {
		x.done(kind, err)
		return
	}
	x.done(kind, nil)
	x.ended(kind, began, err)
}

// tcp sends lines, on short and on long connections.
func (x *traffic) tcp(port int) {
	x.repeatRequest(pause, func() { x.done("TCP", x.lines(port, "", 1, nil)) })
	x.long("TCP stream", port, "")
}

// webSockets sends lines on upgraded requests, short and long.
func (x *traffic) webSockets(port int) {
	const upgrade = "GET / HTTP/1.1\r\nHost: backend\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
	x.repeatRequest(pause, func() { x.done("WebSocket", x.lines(port, upgrade, 1, nil)) })
	x.long("WebSocket stream", port, upgrade)
}

func (x *traffic) long(kind string, port int, greeting string) {
	x.repeat(pause, func() {
		began, messages := time.Now(), 0
		err := x.lines(port, greeting, 1<<30, &messages)
		x.finish(kind, began, messages+1, err)
	})
}

// lines opens a connection, and sends a number of lines.
func (x *traffic) lines(port int, greeting string, n int, count *int) error {
	c, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", port), slow)
	if err != nil {
		return err
	}
	defer c.Close()
	defer context.AfterFunc(x.ctx, func() { c.Close() })()
	r := bufio.NewReader(c)
	if greeting != "" {
		_ = c.SetDeadline(time.Now().Add(slow))
		if _, err := io.WriteString(c, greeting); err != nil {
			return err
		}
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			return err
		}
		if resp.StatusCode != http.StatusSwitchingProtocols {
			return fmt.Errorf("status %d", resp.StatusCode)
		}
	}
	tick := time.NewTicker(10 * pause)
	defer tick.Stop()
	for i := range n {
		if i > 0 {
			select {
			case <-tick.C:
			case <-x.ctx.Done():
				return x.ctx.Err()
			}
		}
		_ = c.SetDeadline(time.Now().Add(slow))
		if err := line(c, r); err != nil {
			return err
		}
		if count != nil {
			*count++
		}
	}
	return nil
}

// report reports all failures, and the numbers of requests and of streams that a drain has ended.
func (x *traffic) report(t testing.TB) {
	t.Helper()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.countEnds()
	total := 0
	for _, n := range x.requests {
		total += n
	}
	t.Logf("%d requests %v, %d changes, %d failed; streams ended by the drain: %v", total, x.requests, len(x.changes),
		len(x.failures), x.drained)
	for i, f := range x.failures {
		if i == 20 {
			t.Errorf("and %d more", len(x.failures)-i)
			break
		}
		t.Errorf("%s: %s: %s, %v", f.at.Format("05.000"), f.kind, f.why, x.before(f.at, 3))
	}
	if total == 0 {
		t.Error(errors.New("no request was sent"))
	}
}
