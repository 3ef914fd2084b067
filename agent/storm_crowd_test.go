package agent_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// stormCodec decodes only the fields of responses that a [stormClient] reads, because hundreds of
// clients share the machine with the agent.
type stormCodec struct{}

func (stormCodec) Name() string { return "proto" }

func (stormCodec) Marshal(v any) ([]byte, error) { return proto.Marshal(v.(proto.Message)) }

func (stormCodec) Unmarshal(b []byte, v any) error {
	r := v.(*stormResponse)
	*r = stormResponse{}
	if keepsResponses.Load() {
		r.raw = bytes.Clone(b)
	}
	return fields(b, func(n protowire.Number, value []byte) error {
		switch n {
		case 2: // a resource
			return fields(value, func(n protowire.Number, value []byte) error {
				if n == 3 {
					r.names = append(r.names, string(value))
				}
				return nil
			})
		case 4:
			r.typeURL = string(value)
		case 5:
			r.nonce = string(value)
		}
		return nil
	})
}

// fields calls f for each length-delimited field of a message.
func fields(b []byte, f func(protowire.Number, []byte) error) error {
	for len(b) > 0 {
		n, typ, size := protowire.ConsumeTag(b)
		if size < 0 {
			return protowire.ParseError(size)
		}
		b = b[size:]
		if typ != protowire.BytesType {
			if size = protowire.ConsumeFieldValue(n, typ, b); size < 0 {
				return protowire.ParseError(size)
			}
			b = b[size:]
			continue
		}
		value, size := protowire.ConsumeBytes(b)
		if size < 0 {
			return protowire.ParseError(size)
		}
		if err := f(n, value); err != nil {
			return err
		}
		b = b[size:]
	}
	return nil
}

type stormResponse struct {
	typeURL, nonce string
	names          []string
	raw            []byte // only if keepsResponses is set
}

// keepsResponses makes clients retain the raw bytes of responses, for tests that inspect them.
var keepsResponses atomic.Bool

// crowdOfClients is a group of delta clients that subscribe to all resources like Envoy,
// acknowledge everything, and reconnect when their stream ends.
type crowdOfClients struct {
	t        testing.TB
	socket   string
	want     int // number of listeners and load assignments per client
	served   atomic.Int64
	full     chan int64   // receives the epoch of a client's first response once the client has everything
	epoch    atomic.Int64 // number of agent restarts
	refusals atomic.Int64
	why      atomic.Pointer[string]
	got      func(k int, typeURL string, names []string)  // called for responses after a client has everything
	raw      func(k int, typeURL string, response []byte) // like got, with the raw response; optional
	wg       sync.WaitGroup
	ctx      context.Context
	cancel   func() // disconnects all clients
}

func newCrowdOfClients(t testing.TB, a *stormAgent, services, most int) *crowdOfClients {
	ctx, cancel := context.WithCancel(context.Background())
	c := &crowdOfClients{t: t, cancel: cancel, socket: a.socket("xds.sock"), want: 2*services + 1,
		full: make(chan int64, 100*most), ctx: ctx, got: func(int, string, []string) {}}
	t.Cleanup(func() { cancel(); c.wg.Wait() })
	return c
}

// connect connects clients, all at the same time.
func (c *crowdOfClients) connect(from, to int) {
	for k := from; k < to; k++ {
		c.wg.Go(func() {
			for n := 0; c.ctx.Err() == nil; n++ {
				err := c.run(k)
				if c.ctx.Err() != nil {
					return
				}
				if code := status.Code(err).String(); code != "Unavailable" { // the agent is running and has refused the stream
					c.refusals.Add(1)
					text := err.Error()
					c.why.Store(&text)
					<-time.After(time.Second) // Envoy waits up to 30 s
				}
				<-time.After(20 * time.Millisecond)
			}
		})
	}
}

// run runs one stream.
func (c *crowdOfClients) run(k int) error {
	conn, err := grpc.NewClient("unix://"+c.socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20), grpc.ForceCodec(stormCodec{})))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	str, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true},
		discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResources_FullMethodName)
	if err != nil {
		return err
	}
	node := &corev3.Node{Id: fmt.Sprintf("default.web-%d", k), UserAgentName: "envoy"}
	send := func(req *discoveryv3.DeltaDiscoveryRequest) error {
		if err := str.SendMsg(req); err != nil {
			return str.RecvMsg(&stormResponse{}) // returns the reason
		}
		return nil
	}
	for _, t := range []string{draft.TypeCluster, draft.TypeListener} {
		if err := send(&discoveryv3.DeltaDiscoveryRequest{Node: node, TypeUrl: t,
			ResourceNamesSubscribe: []string{"*"}}); err != nil {
			return err
		}
	}
	subscribed, count, full, epoch := map[string]bool{}, 0, false, int64(-1)
	for {
		r := &stormResponse{}
		if err := str.RecvMsg(r); err != nil {
			return err
		}
		if epoch < 0 {
			epoch = c.epoch.Load()
		}
		if err := send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: r.typeURL, ResponseNonce: r.nonce}); err != nil {
			return err
		}
		switch {
		case full:
			c.got(k, r.typeURL, r.names)
			if c.raw != nil {
				c.raw(k, r.typeURL, r.raw)
			}
		case r.typeURL == draft.TypeCluster:
			var names []string
			for _, name := range r.names {
				if strings.HasPrefix(name, "svc-") && !subscribed[name] {
					subscribed[name] = true
					names = append(names, name)
				}
			}
			if err := send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: draft.TypeEndpoint,
				ResourceNamesSubscribe: names}); err != nil {
				return err
			}
		default:
			if count += len(r.names); count >= c.want {
				full = true
				c.served.Add(1)
				c.full <- epoch
			}
		}
	}
}

// await waits until n clients have everything.
func (c *crowdOfClients) await(n int, patience time.Duration) {
	c.t.Helper()
	late := time.After(patience)
	for n > 0 {
		select {
		case epoch := <-c.full:
			if epoch == c.epoch.Load() {
				n--
			}
		case <-late:
			c.t.Fatalf("after %s only %d clients have everything; %d were refused, the last since %s",
				patience, c.served.Load(), c.refusals.Load(), c.reason())
		}
	}
}

func (c *crowdOfClients) reason() string {
	if why := c.why.Load(); why != nil {
		return *why
	}
	return "-"
}
