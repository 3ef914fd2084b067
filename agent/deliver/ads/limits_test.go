package ads_test

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
)

// readsOnly is an ADS server that reads requests and never responds.
type readsOnly struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
}

func (readsOnly) DeltaAggregatedResources(
	str discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	for {
		if _, err := str.Recv(); err != nil {
			return err
		}
	}
}

// TestLimitsOfGRPC measures how much a grpc-go server buffers for one connection with unfinished
// requests, with all limits that grpc-go offers. The result is the reason for meteredConn: gRPC
// grows the window of a stream to the size of the message being read, and replenishes the window of
// a connection when bytes arrive, not when a message is complete.
func TestLimitsOfGRPC(t *testing.T) {
	const (
		streams = 20
		message = 1 << 20
	)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(grpc.MaxRecvMsgSize(message), grpc.MaxConcurrentStreams(100), grpc.MaxHeaderListSize(64<<10),
		grpc.StaticStreamWindowSize(64<<10), grpc.StaticConnWindowSize(256<<10),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second}))
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(s, readsOnly{})
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	defer func() {
		s.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	r := &rawConn{Conn: conn, stream: 1}
	r.write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))
	r.frame(4, 0, 0, nil)
	windows := &credits{of: map[uint32]int{0: 64<<10 - 1}}
	buffered := 0
	for range streams {
		id := r.open()
		windows.of[id] = 64 << 10
		payload := append(binary.BigEndian.AppendUint32([]byte{0}, message), make([]byte, message-1)...)
		for len(payload) > 0 {
			n := min(len(payload), 16<<10, windows.of[0], windows.of[id])
			if n == 0 {
				if err := windows.more(conn); err != nil {
					t.Fatalf("after %d bytes: %v", buffered, err)
				}
				continue
			}
			r.frame(0, 0, id, payload[:n])
			windows.of[0], windows.of[id] = windows.of[0]-n, windows.of[id]-n
			payload, buffered = payload[n:], buffered+n
		}
	}
	t.Logf("gRPC buffers %d bytes of %d unfinished requests on a connection with a window of %d bytes", buffered, streams,
		256<<10)
	if buffered < streams*(message-1) {
		t.Errorf("gRPC buffers %d bytes only: meteredConn may be unnecessary", buffered)
	}
}

// credits holds the bytes that a client may still send, by stream; stream 0 is the connection.
type credits struct{ of map[uint32]int }

// more waits for a window update.
func (c *credits) more(conn net.Conn) error {
	if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return err
	}
	for {
		var head [9]byte
		if _, err := io.ReadFull(conn, head[:]); err != nil {
			return err
		}
		payload := make([]byte, int(head[0])<<16|int(head[1])<<8|int(head[2]))
		if _, err := io.ReadFull(conn, payload); err != nil {
			return err
		}
		switch id := binary.BigEndian.Uint32(head[5:]); head[3] {
		case 3, 7:
			return errors.New("the server ended a stream or the connection")
		case 8:
			c.of[id] += int(binary.BigEndian.Uint32(payload))
			return nil
		}
	}
}
