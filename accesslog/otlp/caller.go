package otlp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/nearside-mesh/nearside/accesslog/spool"
)

// caller sends requests to an endpoint.
type caller interface {
	// call sends a request and returns the answer. With an error it returns the delay before a retry:
	// 0 for the default backoff, negative for no retry.
	call(ctx context.Context, request []byte) (answer []byte, after time.Duration, err error)
	reset() // allows the next call to connect at once
	close() error
}

// newCaller returns a caller for an endpoint: a host:port, by gRPC without TLS, or a URL.
func newCaller(endpoint string) (caller, error) {
	dialer := net.Dialer{Control: spool.SetUserTimeout, Timeout: spool.DialTimeout}
	if isURL(endpoint) {
		transport := &http.Transport{DialContext: dialer.DialContext, MaxConnsPerHost: 1, IdleConnTimeout: time.Minute,
			TLSHandshakeTimeout: spool.DialTimeout, MaxResponseHeaderBytes: exportAnswer, ForceAttemptHTTP2: true}
		return &httpCaller{url: endpoint, transport: transport}, nil
	}
	// Without a gRPC resolver, the name is resolved for each connection.
	conn, err := grpc.NewClient("passthrough:///"+endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return dialer.DialContext(ctx, "tcp", address)
		}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{BaseDelay: spool.FirstBackoff, Multiplier: 2, Jitter: 0.5,
				MaxDelay: spool.MaxBackoff},
			MinConnectTimeout: spool.DialTimeout,
		}),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawCodec{}), grpc.MaxCallSendMsgSize(2*maxRequest),
			grpc.MaxCallRecvMsgSize(exportAnswer)),
		grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(), grpc.WithIdleTimeout(0))
	if err != nil {
		return nil, err
	}
	return grpcCaller{conn}, nil
}

func isURL(endpoint string) bool { return strings.Contains(endpoint, "://") }

// checkEndpoint checks an endpoint of a route.
func checkEndpoint(endpoint string) error {
	if !isURL(endpoint) {
		return spool.CheckAddress("endpoint", endpoint)
	}
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.User != nil {
		return fmt.Errorf("endpoint %q is not a URL of http or https without credentials", endpoint)
	}
	return spool.CheckAddress("endpoint", u.Host)
}

type grpcCaller struct{ conn *grpc.ClientConn }

func (c grpcCaller) call(ctx context.Context, request []byte) (answer []byte, after time.Duration, err error) {
	if err := c.conn.Invoke(ctx, "/"+logsService+"/"+exportMethod, &request, &answer); err != nil {
		return nil, retryAfter(err), err
	}
	return answer, 0, nil
}

func (c grpcCaller) reset()       { c.conn.ResetConnectBackoff() }
func (c grpcCaller) close() error { return c.conn.Close() }

// retryAfter returns the delay before a retry according to OTLP: 0 for the default backoff,
// negative for no retry.
func retryAfter(err error) time.Duration {
	s, ok := status.FromError(err)
	if !ok {
		return 0
	}
	var asked time.Duration
	has := false
	for _, d := range s.Details() {
		if info, ok := d.(*errdetails.RetryInfo); ok {
			asked, has = min(max(info.GetRetryDelay().AsDuration(), 0), maxDelay), true
		}
	}
	switch s.Code() {
	case codes.Canceled, codes.DeadlineExceeded, codes.Aborted, codes.OutOfRange, codes.Unavailable, codes.DataLoss:
		return asked
	case codes.ResourceExhausted:
		if has {
			return asked
		}
	}
	return -1
}

// httpCaller sends OTLP over HTTP (https://opentelemetry.io/docs/specs/otlp, section OTLP/HTTP).
type httpCaller struct {
	url       string
	transport *http.Transport
}

func (c *httpCaller) call(ctx context.Context, request []byte) (answer []byte, after time.Duration, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(request))
	if err != nil {
		return nil, -1, err
	}
	r.Header.Set("Content-Type", "application/x-protobuf")
	got, err := c.transport.RoundTrip(r) // redirects are not followed: they could lead anywhere
	if err != nil {
		return nil, 0, err
	}
	answer, err = io.ReadAll(io.LimitReader(got.Body, exportAnswer))
	if err = errors.Join(err, got.Body.Close()); err != nil {
		return nil, 0, err
	}
	switch got.StatusCode {
	case http.StatusOK:
		return answer, 0, nil
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		if seconds, err := strconv.ParseUint(got.Header.Get("Retry-After"), 10, 31); err == nil {
			after = min(time.Duration(seconds)*time.Second, maxDelay)
		}
		return nil, after, fmt.Errorf("status %d", got.StatusCode)
	}
	return nil, -1, fmt.Errorf("status %d", got.StatusCode)
}

func (c *httpCaller) reset() {}

func (c *httpCaller) close() error {
	c.transport.CloseIdleConnections()
	return nil
}
