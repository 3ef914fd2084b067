package rollout

import (
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/envoy"
)

// inbounds holds the inbound listeners that the client of a stream serves. It is guarded by the mu
// of the proxy.
type inbounds struct {
	serves []string          // sorted
	noted  []*draft.Resource // the listeners of the client when all of its inbounds were in serves
	told   bool              // serves was reported
}

// resume records the listeners that a client reports when a stream starts.
func (s *inbounds) resume(has map[string]string) {
	for name := range has {
		if strings.HasPrefix(name, inboundPrefix) {
			s.serves = append(s.serves, name)
		}
	}
	slices.Sort(s.serves)
}

// noteInbounds reports the inbound listeners that the client serves, if these have changed. A
// listener that it rejects in a new form stays. Nothing is reported while the client still has to
// answer something on which an inbound depends; all is set if it has answered the whole config. The
// caller holds the mu of the proxy.
func (st *Stream) noteInbounds(all bool) {
	n, w, s := st.proxy, st.watches[draft.RankListener], &st.inbounds
	if n.proxies.opts.Inbounds == nil || w == nil || st.ended || st.subscribing || !w.answered() || n.cfg == nil ||
		s.told && draft.SameList(w.base, s.noted) {
		return
	}
	var serves []string
	for _, name := range s.serves {
		if _, over := w.over[name]; over || draft.Find(w.base, name) != nil {
			serves = append(serves, name)
		}
	}
	for _, r := range w.base {
		if !strings.HasPrefix(r.Name, inboundPrefix) || slices.Contains(serves, r.Name) {
			continue
		}
		if _, rejected := w.over[r.Name]; rejected {
			// Envoy applies the other listeners of a response, and they stay until the list changes.
			if a := n.acceptedForm(draft.RankListener, r.Name); a == nil || a.Version != r.Version {
				continue
			}
		}
		if !st.hasAcked(r) {
			return
		}
		serves = append(serves, r.Name)
	}
	slices.Sort(serves)
	complete := !slices.ContainsFunc(n.cfg.Resources[draft.RankListener], func(r *draft.Resource) bool {
		return strings.HasPrefix(r.Name, inboundPrefix) && !slices.Contains(serves, r.Name)
	})
	if !complete && !all {
		return
	}
	if complete {
		s.noted = w.base
	}
	if !s.told || !slices.Equal(s.serves, serves) {
		s.told, s.serves = true, serves
		n.proxies.opts.Inbounds(n.ref, st.client.Peer.Process, serves)
	}
}

// hasAcked reports whether the client has acknowledged the secrets and routes of a listener,
// without which Envoy does not open it.
func (st *Stream) hasAcked(listener *draft.Resource) bool {
	for kind, rank := range map[envoy.Kind]int{envoy.KindSecret: draft.RankSecret, envoy.KindRoute: draft.RankRoute} {
		for _, name := range listener.Refs().Names(kind) {
			w := st.watches[rank]
			if w == nil || draft.Find(w.base, name) == nil || slices.ContainsFunc(w.unacked, func(t *Response) bool {
				return draft.Find(t.Send, name) != nil
			}) {
				return false
			}
			if _, due := w.over[name]; due {
				return false
			}
		}
	}
	return true
}
