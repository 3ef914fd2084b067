package rollout

import (
	"strconv"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
)

// passing are words of messages by which a client rejects a resource for something outside of it
// that may pass: a port that is in use, a file or directory that is not there, a right that is
// missing. Envoy says them of sockets (listener_manager, network), of access logs and of files that
// a config names (filesystem); the errors are those of strerror(3).
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
	"Invalid path:", // what Envoy says of a file that is not there
	"does not exist",
	"Too many open files",
	"No space left on device",
	"Read-only file system",
}

const (
	firstRetry = 5 * time.Second
	lastRetry  = 5 * time.Minute
)

// retry says when a resource that was rejected for a passing reason is sent again without any
// change.
type retry struct {
	attempt int       // the next, from 1 on; 0: it is not tried again
	at      time.Time // when that is due
	sent    bool      // it is under way
}

// ReasonOfHost says whether a client rejects something for what its host has or lacks: it may take
// the same bytes later, and no policy is the cause.
func ReasonOfHost(reason string) bool {
	for _, words := range passing {
		if strings.Contains(reason, words) {
			return true
		}
	}
	return false
}

// retryAfter is how long the n-th attempt waits, from 1 on.
func retryAfter(n int) time.Duration {
	d := firstRetry
	for ; n > 1 && d < lastRetry; n-- {
		d *= 2
	}
	return min(d, lastRetry)
}

// reasonOf returns what a message says of one of the resources that it names: from its name on to
// the next of them.
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

// schedule says when a rejected resource is tried again; was is what was known of it before, nil
// for nothing.
func schedule(was *rejection, r *draft.Resource, reason string, now time.Time) retry {
	if !ReasonOfHost(reason) {
		return retry{}
	}
	if was == nil || was.resource.Version != r.Version || was.retry.attempt == 0 {
		return retry{attempt: 1, at: now.Add(retryAfter(1))}
	}
	if !was.retry.sent { // it went with another change
		return was.retry
	}
	next := was.retry.attempt + 1
	return retry{attempt: next, at: now.Add(retryAfter(next))}
}

// armRetry has the timer of the node run out when the next rejected resource is to be tried again.
// The mu of the node is held.
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

// tryAgain sends what is due once more. The mu of the node is held.
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
				if w := st.watches[rank]; w != nil && w.sub != nil && w.wants(name) {
					w.quietFor = ""
					w.markStale(name)
				}
			}
		}
	}
	n.hold()
	n.refresh()
	n.noteAnswered()
}

// said is the reason of a rejection, with what the agent does about it, as seen at a time.
func (r *rejection) reasonAt(now time.Time) string {
	if r.suspect && !r.retry.sent {
		return r.reason + "; no resource is named, so those that were new are tried in parts"
	}
	return r.reason + r.retry.reasonAt(now)
}

// said says when a resource is tried again, as seen at a time; "" where it is not.
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
