// Package envoyadmin asks Envoys over their admin sockets. An Envoy is asked only where its socket
// is certain to be its own, and what it answers is taken for what any process may have said: an
// answer is bounded in time and size, and one that is not well formed is an error. It starts no
// goroutine.
package envoyadmin

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
)

// bounds are those of one answer: how long it may take, and its bytes, header included.
type bounds struct {
	timeout time.Duration
	most    int64
}

// short are the bounds of what is asked in the course of events.
var short = bounds{time.Second, 1 << 20}

// maxCount bounds a counter: no Envoy comes that far, and sums stay within 64 bits.
const maxCount = 1 << 40

// Envoy is one whose admin socket lies where the bootstrap puts it: DIR/UID/ID.sock, with the user
// of its xDS stream.
type Envoy struct {
	Dir  string      // with a directory for each user, to which that user alone can write
	ID   string      // its node id
	Peer access.Peer // of its xDS stream
}

// checkPeers says whether who answers is who has the stream.
func checkPeers(asked, stream access.Peer) error {
	if asked.UID != stream.UID || asked.PID != stream.PID {
		return fmt.Errorf("the admin socket is that of %s, the xDS stream that of %s", asked, stream)
	}
	return nil
}

// get returns the body of the answer to a path.
func (e Envoy) get(ctx context.Context, path string) (string, error) {
	body, err := e.ask(ctx, "GET", path, short)
	return string(body), err
}

// ReopenLogs has the Envoy write all log lines that it holds and open its log files anew. It
// answers before it has done so.
func (e Envoy) ReopenLogs(ctx context.Context) error {
	_, err := e.ask(ctx, "POST", "/reopen_logs", short)
	return err
}

// ask returns the body of the answer to a request.
func (e Envoy) ask(ctx context.Context, method, path string, b bounds) ([]byte, error) {
	if !e.Peer.Local || e.Peer.Foreign || e.Peer.PID <= 0 {
		return nil, fmt.Errorf("the admin socket of %s cannot be told: the xDS stream is that of %s", e.ID, e.Peer)
	}
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	c, err := e.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	deadline, _ := ctx.Deadline()
	if err := c.SetDeadline(deadline); err != nil {
		return nil, err
	}
	if _, err := fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: envoy\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
		method, path); err != nil {
		return nil, err
	}
	in := &io.LimitedReader{R: c, N: b.most}
	res, err := http.ReadResponse(bufio.NewReader(in), nil)
	var body []byte
	if err == nil {
		body, err = io.ReadAll(res.Body)
	}
	switch {
	case in.N <= 0:
		return nil, fmt.Errorf("the answer has more than %d bytes", b.most)
	case errors.Is(err, net.ErrClosed), isTimeout(err):
		return nil, fmt.Errorf("no answer within %v", b.timeout)
	case err != nil:
		return nil, fmt.Errorf("the answer is not HTTP: %w", err)
	case res.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("the answer has status %d", res.StatusCode)
	}
	return body, nil
}

func isTimeout(err error) bool {
	var t net.Error
	return errors.As(err, &t) && t.Timeout()
}

// counters returns the used counters of which the whole name matches a regular expression.
func (e Envoy) counters(ctx context.Context, filter *regexp.Regexp) (map[string]uint64, error) {
	body, err := e.get(ctx, "/stats?usedonly&type=Counters&filter="+url.QueryEscape(filter.String()))
	if err != nil {
		return nil, err
	}
	out := map[string]uint64{}
	for line := range strings.Lines(body) {
		name, text, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		v, err := strconv.ParseUint(text, 10, 64)
		if err != nil || v > maxCount || !filter.MatchString(name) {
			return nil, errors.New("the answer is not a list of the counters that were asked for")
		}
		out[name] = v
	}
	return out, nil
}

// Counters of writes to log files whose lines are lost, and of attempts to open log files anew in
// vain, after which lines are lost.
const (
	writeFailed  = "filesystem.write_failed"
	reopenFailed = "filesystem.reopen_failed"
)

// wanted are the counters of failed writes, of connections that no filter chain takes, and of those
// that are led to a cluster without endpoints, as a closed passthrough does.
var wanted = regexp.MustCompile(`^(filesystem\.(write|reopen)_failed|listener\..+\.no_filter_chain_match|cluster\.outbound_passthrough_ipv[46]\.upstream_cx_none_healthy)$`)

// passthrough is what the names of the listeners begin with at which connections to unknown
// destinations arrive.
const passthrough = "outbound:passthrough:"

// Counts returns what the Envoy has counted since it started.
func (e Envoy) Counts(ctx context.Context) (api.ProxyCounts, error) {
	stats, err := e.counters(ctx, wanted)
	if err != nil {
		return api.ProxyCounts{}, err
	}
	out := api.ProxyCounts{WritesFailed: stats[writeFailed], ReopensFailed: stats[reopenFailed]}
	unchained := map[string]uint64{} // by the name that statistics have of a listener
	for name, v := range stats {
		if at, ok := strings.CutPrefix(name, "listener."); ok {
			unchained[strings.TrimSuffix(at, ".no_filter_chain_match")] = v
		} else if strings.HasPrefix(name, "cluster.") {
			out.Refused += v
		}
	}
	if len(unchained) == 0 {
		return out, nil
	}
	body, err := e.get(ctx, "/listeners")
	if err != nil {
		return api.ProxyCounts{}, err
	}
	for line := range strings.Lines(body) {
		name, at, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "::")
		if !strings.HasPrefix(name, passthrough) {
			continue
		}
		addr, err := netip.ParseAddrPort(at)
		if err != nil {
			return api.ProxyCounts{}, errors.New("the answer is not a list of listeners")
		}
		stat := strings.ReplaceAll(addr.String(), ":", "_")
		out.Refused += unchained[stat]
		delete(unchained, stat)
	}
	return out, nil
}
