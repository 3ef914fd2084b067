package envoyadmin

import (
	"context"
	"errors"
	"net/url"
	"strconv"
	"strings"
)

// FailHealth makes the Envoy fail its health checks until [Envoy.PassHealth], or until it ends. The
// Envoy continues to accept connections and requests. It closes an HTTP/1 connection after the next
// response, sends GOAWAY on an HTTP/2 connection with the next response, and responds to /ready
// with 503.
func (e Envoy) FailHealth(ctx context.Context) error {
	_, err := e.ask(ctx, "POST", "/healthcheck/fail", short)
	return err
}

// PassHealth undoes [Envoy.FailHealth].
func (e Envoy) PassHealth(ctx context.Context) error {
	_, err := e.ask(ctx, "POST", "/healthcheck/ok", short)
	return err
}

// activeGauges are the gauges of [Envoy.Active]: those of the clusters of inbounds.
const activeGauges = `^cluster\.(localhost_|inbound_passthrough_).*\.upstream_rq_active$`

// Active returns the number of requests and TCP connections that the Envoy passes to its workload
// now.
func (e Envoy) Active(ctx context.Context) (n int, err error) {
	body, err := e.get(ctx, "/stats?type=Gauges&filter="+url.QueryEscape(activeGauges))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(body) {
		name, text, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		v, err := strconv.ParseUint(text, 10, 31)
		if err != nil || !strings.HasSuffix(name, ".upstream_rq_active") {
			return 0, errors.New("the answer is not a list of the gauges that were asked for")
		}
		n += int(v)
	}
	return n, nil
}
