package rollout

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
)

// passing lists parts of the messages with which a client rejects a resource for a reason on its
// host that may pass: a port in use, a missing file or directory, or a missing permission. Envoy
// reports them for sockets (listener_manager, network), access logs, and files that a config names
// (filesystem). The errors are those of strerror(3). The first four are about ports.
var passing = [...]string{
	"cannot bind",
	"failed to bind",
	"Address already in use",
	"Cannot assign requested address",
	"Permission denied",
	"Operation not permitted",
	"No such file or directory",
	"No such device",
	"unable to open file",
	"unable to read file",
	"Invalid path:", // Envoy's message for a file that does not exist
	"does not exist",
	"Too many open files",
	"No space left on device",
	"Read-only file system",
}

const (
	firstRetry = 5 * time.Second
	lastRetry  = 5 * time.Minute
)

// retry is the schedule of a resource that was rejected for a reason that may pass.
type retry struct {
	attempt int       // the next attempt, from 1; 0: no retry
	at      time.Time // when the attempt is due
	sent    bool      // the attempt has been sent
}

// ReasonOfHost reports whether a client rejects a resource because of the state of its host. It may
// accept the same bytes later, and no policy is the cause.
func ReasonOfHost(reason string) bool {
	for _, words := range passing {
		if strings.Contains(reason, words) {
			return true
		}
	}
	return false
}

// ReasonOfPort reports whether a client rejects a resource because it cannot listen on an address.
// Only a policy that sets the address can be the cause.
func ReasonOfPort(reason string) bool {
	return slices.ContainsFunc(passing[:4], func(words string) bool { return strings.Contains(reason, words) })
}

// RetryAfter returns the delay before an attempt, from 1.
func RetryAfter(n int) time.Duration {
	d := firstRetry
	for ; n > 1 && d < lastRetry; n-- {
		d *= 2
	}
	return min(d, lastRetry)
}

// reasonOf returns the part of a message about one of the named resources: from its name to the
// next name.
func reasonOf(message, name string, names map[string]struct{}) string {
	_, rest, ok := strings.Cut(clip.Text(message, maxMessage), name)
	if !ok {
		return message
	}
	end := len(rest)
	for other := range names {
		if i := strings.Index(rest, other+":"); i >= 0 && other != name && !strings.Contains(name, other) {
			end = min(end, i)
		}
	}
	return rest[:end]
}

// schedule returns the next retry of a rejected resource. was is the previous rejection, nil for
// none.
func schedule(was *rejection, r *draft.Resource, reason string, now time.Time) retry {
	if !ReasonOfHost(reason) {
		return retry{}
	}
	if was == nil || was.resource.Version != r.Version || was.retry.attempt == 0 {
		return retry{attempt: 1, at: now.Add(RetryAfter(1))}
	}
	if !was.retry.sent { // it was sent with another change
		return was.retry
	}
	next := was.retry.attempt + 1
	return retry{attempt: next, at: now.Add(RetryAfter(next))}
}

// scheduleRetry starts the timer for the next retry. The caller holds the mu of the proxy.
func (n *proxy) scheduleRetry() {
	if n.retryTimer != nil {
		n.retryTimer.Stop()
		n.retryTimer = nil
	}
	if n.cfg == nil || len(n.streams) == 0 {
		return
	}
	first := n.nextRetry()
	if first.IsZero() {
		return
	}
	n.retryTimer = time.AfterFunc(max(0, first.Sub(n.proxies.opts.Now())), func() {
		n.mu.Lock()
		defer n.unlock()
		n.retryDue(n.proxies.opts.Now())
	})
}

// retryDue sends the resources whose retry is due. The caller holds the mu of the proxy.
func (n *proxy) retryDue(now time.Time) {
	if n.cfg == nil {
		return
	}
	for rank, names := range n.rejected {
		for name, rej := range names {
			if rej.retry.attempt == 0 || rej.retry.sent || rej.retry.at.After(now) {
				continue
			}
			rej.retry.sent = true
			if rej.alone {
				n.tryAlone(rank, name, rej)
			}
			for _, st := range n.streams {
				st.retry(retryName{rank, name})
			}
		}
	}
	n.hold()
	n.refresh()
	n.noteAnswered()
}

// reasonAt returns the reason of a rejection, and when the agent retries it, as of a time.
func (r *rejection) reasonAt(now time.Time) string {
	if r.suspect && !r.retry.sent {
		return r.reason + "; the message names no resource, so new resources are sent again in groups"
	}
	return r.reason + r.retry.reasonAt(now)
}

// reasonAt returns when a resource is sent again as of a time, "" for never.
func (r retry) reasonAt(now time.Time) string {
	switch {
	case r.attempt == 0:
		return ""
	case r.sent:
		return "; rejected, tried again now (attempt " + strconv.Itoa(r.attempt) + ")"
	}
	wait := max(0, r.at.Sub(now).Round(time.Second)) / time.Second
	return "; rejected, tried again in " + strconv.Itoa(int(wait)) + " s (attempt " + strconv.Itoa(r.attempt) + ")"
}

// retryName is the name of a resource that is sent again.
type retryName struct {
	rank int
	name string
}

// retry lets the stream send a rejected resource again. The caller holds the mu of the proxy.
func (st *Stream) retry(r retryName) {
	w := st.watches[r.rank]
	switch {
	case w == nil || w.sub == nil:
	case st.subscribing:
		st.retries = append(st.retries, r)
	case w.wants(r.name):
		w.quietFor = ""
		w.markStale(r.name)
	}
}

// retryDeferred makes the retries that were due while the subscription changed. The caller holds
// the mu of the proxy.
func (st *Stream) retryDeferred() {
	for _, r := range st.retries {
		st.retry(r)
	}
	st.retries = nil
}
