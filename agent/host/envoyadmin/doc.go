// Package envoyadmin queries Envoys over their admin sockets. It sends a request only if the socket
// is certain to belong to the Envoy. Responses are untrusted: they are limited in time and size,
// and malformed ones are errors. The package starts no goroutines.
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

// bounds are the limits of a response: its time and its size in bytes, including the header.
type bounds struct {
	timeout time.Duration
	most    int64
}

// short are the limits of automatic queries.
var short = bounds{time.Second, 1 << 20}

// wide are the limits of automatic queries about each listener.
var wide = bounds{time.Second, 4 << 20}

// maxCount limits a counter. Envoy counters never reach it, and sums of counters fit in 64 bits.
const maxCount = 1 << 40

// Envoy is an Envoy with its admin socket at the path that the bootstrap sets: DIR/UID/ID.sock,
// where UID is the user of its xDS stream.
type Envoy struct {
	Dir  string      // contains a directory for each user, writable only by that user
	ID   string      // node ID
	Peer access.Peer // peer of its xDS stream
	// Socket replaces the other fields for a caller that runs as the Envoy's user: the path of the
	// admin socket. The process behind it is not checked.
	Socket string
}

// checkPeers returns an error if the peer of the admin socket is not the peer of the stream.
func checkPeers(asked, stream access.Peer) error {
	if asked.UID != stream.UID || asked.PID != stream.PID {
		return fmt.Errorf("the admin socket is that of %s, the xDS stream that of %s", asked, stream)
	}
	return nil
}

// get returns the body of the response for a path.
func (e Envoy) get(ctx context.Context, path string) (string, error) {
	body, err := e.ask(ctx, "GET", path, short)
	return string(body), err
}

// ReopenLogs makes Envoy flush and reopen its log files. Envoy responds before it has done so.
func (e Envoy) ReopenLogs(ctx context.Context) error {
	_, err := e.ask(ctx, "POST", "/reopen_logs", short)
	return err
}

// ask returns the body of the response to a request.
func (e Envoy) ask(ctx context.Context, method, path string, b bounds) ([]byte, error) {
	if e.Socket == "" && e.Peer.Pod != nil {
		return nil, access.ErrPodAdmin
	}
	if e.Socket == "" && (!e.Peer.Local || e.Peer.Foreign || e.Peer.PID <= 0) {
		return nil, fmt.Errorf("the admin socket of %s cannot be identified: the xDS stream belongs to %s",
			e.ID, e.Peer)
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

// counters returns the used counters and gauges whose whole name matches a regular expression.
func (e Envoy) counters(ctx context.Context, filter *regexp.Regexp) (map[string]uint64, error) {
	body, err := e.ask(ctx, "GET", "/stats?usedonly&filter="+url.QueryEscape(filter.String()), wide)
	if err != nil {
		return nil, err
	}
	out := map[string]uint64{}
	for line := range strings.Lines(string(body)) {
		name, text, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		v, err := strconv.ParseUint(text, 10, 64)
		if err != nil || v > maxCount || !filter.MatchString(name) {
			return nil, errors.New("the answer is not a list of the counters that were asked for")
		}
		out[name] = v
	}
	return out, nil
}

// Counters of failed and successful writes to log files, and of failed attempts to reopen log
// files. The lines of failed writes are lost.
const (
	writeFailed  = "filesystem.write_failed"
	reopenFailed = "filesystem.reopen_failed"
	writeDone    = "filesystem.write_completed"
	writeLine    = "filesystem.write_buffered" // one for each line of a logger
	uptime       = "server.uptime"             // in seconds
)

// wanted matches the uptime, and the counters of writes, of connections, requests, and failed
// requests of listeners, of connections without a matching filter chain, of clients that sent too
// little in time, of connections to a cluster without endpoints, which a closed passthrough uses,
// of failed connections and refused requests of clusters, and of connections that inbounds denied.
var wanted = regexp.MustCompile(`^(server\.uptime|` +
	`filesystem\.((write|reopen)_failed|write_completed|write_buffered)|` +
	`listener\.(\d[\d.]*|\[[\da-f_.%]+\])_\d+\.(downstream_cx_total|http\..+\.downstream_rq_(completed|5xx))|` +
	`listener\..+\.(no_filter_chain_match|downstream_pre_cx_timeout)|` +
	`cluster\.outbound_passthrough_ipv[46]\.upstream_cx_none_healthy|` +
	`cluster\..+\.upstream_(cx_connect_fail|rq_403)|` +
	`inbound_.+_\d+\.rbac\.denied)$`)

// passthrough is the name prefix of the listeners for connections to unknown destinations.
const passthrough = "outbound:passthrough:"

// Counts returns the counters since Envoy started.
func (e Envoy) Counts(ctx context.Context) (api.ProxyCounts, error) {
	stats, err := e.counters(ctx, wanted)
	if err != nil {
		return api.ProxyCounts{}, err
	}
	out := api.ProxyCounts{WritesFailed: stats[writeFailed], ReopensFailed: stats[reopenFailed],
		WritesDone: stats[writeDone], Logged: stats[writeLine], Uptime: time.Duration(stats[uptime]) * time.Second}
	unchained, late := map[string]uint64{}, map[string]uint64{} // by the listener's name in statistics
	traffic, failed := map[string]api.ListenerTraffic{}, map[string]uint64{}
	for name, v := range stats {
		if at, ok := strings.CutSuffix(name, ".rbac.denied"); ok {
			if out.Denied == nil {
				out.Denied = map[string]uint64{}
			}
			out.Denied[at[strings.LastIndexByte(at, '_')+1:]] += v
		} else if addCluster(&out, stats, name, v) {
			continue
		} else if at, ok := strings.CutPrefix(name, "listener."); ok {
			if at, ok := strings.CutSuffix(at, ".downstream_pre_cx_timeout"); ok && v > 0 {
				late[at] = v
			} else if at, ok := strings.CutSuffix(at, ".downstream_cx_total"); ok {
				x := traffic[at]
				x.Connections += v
				traffic[at] = x
			} else if strings.HasSuffix(at, ".downstream_rq_5xx") {
				at, _, _ := strings.Cut(at, ".http.")
				failed[at] += v
			} else if strings.HasSuffix(at, ".downstream_rq_completed") {
				at, _, _ := strings.Cut(at, ".http.")
				x := traffic[at]
				x.Requests += v
				traffic[at] = x
			} else if at, ok := strings.CutSuffix(at, ".no_filter_chain_match"); ok {
				unchained[at] = v
			}
		} else if strings.HasPrefix(name, "cluster.") {
			out.Refused += v
		}
	}
	if len(unchained)+len(late)+len(traffic) == 0 {
		return out, nil
	}
	body, err := e.ask(ctx, "GET", "/listeners", wide)
	if err != nil {
		return api.ProxyCounts{}, err
	}
	for line := range strings.Lines(string(body)) {
		name, at := splitListener(strings.TrimSuffix(line, "\n"))
		addr, err := netip.ParseAddrPort(at)
		if err != nil && strings.HasPrefix(name, passthrough) {
			return api.ProxyCounts{}, errors.New("the answer is not a list of listeners")
		}
		stat := strings.ReplaceAll(addr.String(), ":", "_")
		if n := late[stat]; n > 0 && err == nil {
			if out.TimedOut == nil {
				out.TimedOut = map[string]uint64{}
			}
			out.TimedOut[name] = n
			delete(late, stat)
		}
		if x, known := traffic[stat]; known && err == nil {
			if out.Listeners == nil {
				out.Listeners = map[string]api.ListenerTraffic{}
			}
			out.Listeners[name] = x
			if strings.HasPrefix(name, "outbound:") {
				if out.Outbounds == nil {
					out.Outbounds = map[string]api.OutboundCounts{}
				}
				out.Outbounds[name] = api.OutboundCounts{Connections: x.Connections, Requests: x.Requests, Failed: failed[stat]}
			}
		}
		if strings.HasPrefix(name, passthrough) {
			out.Refused += unchained[stat]
			delete(unchained, stat)
		}
	}
	return out, nil
}

// partOfCluster matches the counters of a cluster that Envoy also has by the origin of requests and
// by zone.
var partOfCluster = regexp.MustCompile(`^(cluster\..+)\.(external|internal|canary|zone\..+)\.upstream_rq_403$`)

// addCluster adds a counter of a cluster. It returns false for other counters.
func addCluster(out *api.ProxyCounts, stats map[string]uint64, name string, v uint64) bool {
	if m := partOfCluster.FindStringSubmatch(name); m != nil {
		if _, whole := stats[m[1]+".upstream_rq_403"]; whole {
			return true
		}
	}
	name, ok := strings.CutPrefix(name, "cluster.")
	if !ok {
		return false
	}
	cluster, unconnected := strings.CutSuffix(name, ".upstream_cx_connect_fail")
	if !unconnected {
		cluster, ok = strings.CutSuffix(name, ".upstream_rq_403")
	}
	if !ok || v == 0 {
		return false
	}
	if out.Clusters == nil {
		out.Clusters = map[string]api.ClusterCounts{}
	}
	x := out.Clusters[cluster]
	if unconnected {
		x.Unconnected += v
	} else {
		x.Refused += v
	}
	out.Clusters[cluster] = x
	return true
}

// splitListener splits a line NAME::ADDRESS. Both parts may contain IPv6 addresses.
func splitListener(line string) (name, at string) {
	i := strings.LastIndex(line, "::[")
	if i < 0 {
		i = strings.LastIndex(line, "::")
	}
	if i < 0 {
		return line, ""
	}
	return line[:i], line[i+2:]
}
