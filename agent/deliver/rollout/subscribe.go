package rollout

import (
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
)

const (
	// MaxNames is the maximum number of names of one type to which a stream may subscribe, or that
	// it may report.
	MaxNames = 200_000
	// maxNameBytes is the maximum size in bytes of all these names together.
	maxNameBytes = 16 << 20
	// maxPrefixes is the maximum number of subscriptions to all names with a prefix. Each name is
	// compared with all prefixes.
	maxPrefixes = 64
	// maxVersion is the maximum size in bytes of a version that a client reports. Versions of this
	// server are shorter.
	maxVersion = 128
)

// Subscription is the subscription of a stream to one type. The maps must not be changed.
type Subscription interface {
	SubscribedResources() map[string]struct{}
	SubscribedPrefixes() map[string]struct{}
	IsWildcard() bool
}

func checkPrefixes(sub Subscription) error {
	if n := len(sub.SubscribedPrefixes()); n > maxPrefixes {
		return status.Errorf(codes.ResourceExhausted,
			"%d names of resources end with /*; at most %d are allowed: subscribe to the resources by name", n, maxPrefixes)
	}
	return nil
}

// Answer is the part of a request that answers a response.
type Answer struct {
	Nonce    string // nonce of the response; "" for none
	Rejected bool   // determined by the error of the request, never by its version (ENVOY rule 120)
	Reason   string
}

// Request handles the answer in a request before the handler reads the request. The first request
// of a type may report the versions of the resources that the client has.
func (st *Stream) Request(rank int, a Answer, has map[string]string) error {
	n := st.proxy
	n.mu.Lock()
	defer n.unlock()
	st.subscribing = st.client.Delta
	w := st.watches[rank]
	if w != nil {
		st.resolve(w, a)
		return nil
	}
	w = &typeWatch{proxy: n, stream: st, rank: rank, delta: st.client.Delta, fresh: true}
	st.watches[rank] = w
	n.status(rank)
	if len(has) > MaxNames {
		return status.Errorf(codes.ResourceExhausted, "%d initial resource versions; at most %d are allowed",
			len(has), MaxNames)
	}
	for name, version := range has {
		w.setHolding(name, holding{kind: holdsVersion, version: version})
	}
	if rank == draft.RankListener {
		st.inbounds.resume(has)
	}
	return nil
}

// ShareNames replaces names of resources by equal ones of the proxy's config, so that the handler
// stores no copies.
func (st *Stream) ShareNames(rank int, names []string) {
	n := st.proxy
	n.mu.Lock()
	defer n.mu.Unlock()
	for i, name := range names {
		if r := n.configured(rank, name); r != nil {
			names[i] = r.Name
		}
	}
}

// resolve finds the response that a request answers, if any, and records the answer.
func (st *Stream) resolve(w *typeWatch, a Answer) {
	if st.transport.HasEnded() {
		return // for example, another peer has taken over the node id
	}
	for i, t := range w.unacked {
		if t.nonce != a.Nonce || a.Nonce == "" {
			continue
		}
		w.unacked = append(w.unacked[:i:i], w.unacked[i+1:]...)
		st.awaitAck(true)
		defer st.proxy.noteAnswered()
		if !a.Rejected {
			st.proxy.acknowledged(t)
			return
		}
		if st.proxy.refused(t, strings.TrimSpace(a.Reason)) {
			w.restore(t)
			return
		}
		// P1: send nothing until the list changes. P3: then send all resources of this response
		// again, even if their bytes are unchanged.
		w.quietFor = t.list
		for _, r := range t.Send {
			w.markStale(r.Name)
		}
		for _, name := range t.Removed {
			w.markStale(name)
		}
		return
	}
}

// Sent records that a response is sent now, so that the client has its resources.
func (st *Stream) Sent(t *Response, nonce string) {
	n := st.proxy
	n.mu.Lock()
	defer n.mu.Unlock()
	w := t.w
	t.noteInitialVersions()
	t.nonce, t.settled = nonce, nil
	if w.ticket == t {
		w.ticket = nil
	}
	t.before, w.base = w.base, t.base
	if len(w.unacked) == maxUnacked {
		w.unacked = w.unacked[1:]
	}
	w.unacked = append(w.unacked, t)
	st.awaitAck(false)
	n.delivered(t)
	st.advance()
}

// SubscribeDelta updates the subscription to a type after a request. push hands over a response. It
// does not block, and reports whether it accepted the response. It is called at most once, before
// cancel.
func (st *Stream) SubscribeDelta(rank int, sub Subscription, subscribe, unsubscribe []string,
	push func(*Response) bool) (cancel func(), err error) {
	n := st.proxy
	n.mu.Lock()
	defer n.mu.Unlock()
	w := st.watches[rank]
	st.subscribing = false
	first := w.sub == nil
	w.sub = sub
	if len(sub.SubscribedResources())+len(w.over) > MaxNames {
		return nil, status.Errorf(codes.ResourceExhausted, "more than %d names of type %s", MaxNames, draft.Types[rank])
	}
	if err := checkPrefixes(sub); err != nil {
		return nil, err
	}
	if !w.fits(subscribe) {
		return nil, status.Errorf(codes.ResourceExhausted, "names of type %s with more than %d bytes",
			draft.Types[rank], maxNameBytes)
	}
	if first && !sub.IsWildcard() {
		w.dropUnwanted()
	}
	if w.over == nil && len(subscribe) > 0 {
		w.over = make(map[string]holding, len(subscribe))
	}
	for _, name := range subscribe {
		_, has := w.over[name]
		switch {
		case name == "*":
			if !first && !w.wildcard {
				w.base, w.owed = nil, true
			}
		case !w.wants(name), first && has:
		default:
			w.setHolding(name, holding{kind: holdsDue})
		}
	}
	w.wildcard = sub.IsWildcard()
	for _, name := range unsubscribe {
		switch {
		case name == "*" || w.fresh && sub.IsWildcard():
		case sub.IsWildcard():
			// The wildcard still covers the name, so the client must receive its state.
			w.setHolding(name, holding{kind: holdsDue})
		default:
			delete(w.over, name)
		}
	}
	st.retryDeferred()
	st.listen(w, push)
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		w.open = false
	}, nil
}

// Subscribe updates the subscription to a type after a state-of-the-world request with the version
// that the client reports. push is as in [Stream.SubscribeDelta].
func (st *Stream) Subscribe(rank int, sub Subscription, version string,
	push func(*Response) bool) (cancel func(), err error) {
	n := st.proxy
	n.mu.Lock()
	defer n.mu.Unlock()
	w := st.watches[rank]
	first, before := w.sub == nil, w.names
	w.sub, w.names = sub, sub.SubscribedResources()
	if len(w.names) > MaxNames {
		return nil, status.Errorf(codes.ResourceExhausted, "more than %d names of type %s", MaxNames, draft.Types[rank])
	}
	if err := checkPrefixes(sub); err != nil {
		return nil, err
	}
	if w.fresh {
		w.claimed = clip.Text(version, maxVersion)
	}
	if !first && !w.fresh {
		for name := range w.names {
			if _, ok := before[name]; !ok {
				w.setHolding(name, holding{kind: holdsDue})
			}
		}
		if sub.IsWildcard() && !w.wildcard {
			w.base, w.owed = nil, true
		}
		w.dropUnwanted()
	}
	w.wildcard = sub.IsWildcard()
	st.listen(w, push)
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		w.open = false
		w.revoke() // the handler discards the response in the channel
	}, nil
}

// dropUnwanted removes the names to which the client is not subscribed.
func (w *typeWatch) dropUnwanted() {
	for name := range w.over {
		if !w.wants(name) {
			delete(w.over, name)
		}
	}
}

// listen enables responses of a type.
func (st *Stream) listen(w *typeWatch, push func(*Response) bool) {
	w.push, w.open = push, true
	st.advance()
	st.proxy.noteAnswered()
}

// HasPending reports whether some names of a type are to be answered or compared.
func (st *Stream) HasPending(rank int) bool {
	st.proxy.mu.Lock()
	defer st.proxy.mu.Unlock()
	return len(st.watches[rank].over) > 0
}

// Names returns the number of the names of a type that the stream stores, and their size in bytes.
func (st *Stream) Names(rank int) (count, bytes int) {
	st.proxy.mu.Lock()
	defer st.proxy.mu.Unlock()
	w := st.watches[rank]
	for _, names := range []map[string]struct{}{w.sub.SubscribedResources(), w.sub.SubscribedPrefixes()} {
		count += len(names)
		for name := range names {
			bytes += len(name)
		}
	}
	for name, h := range w.over {
		count++
		bytes += len(name) + len(h.version)
	}
	return count, bytes
}
