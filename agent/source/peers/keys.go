package peers

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/nearside-mesh/nearside/agent/host/keyring"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/gossip"
)

// reloadKeys loads the keyring again after its file has changed.
func (s *Source) reloadKeys() {
	if s.o.KeyringFile == "" {
		return
	}
	s.keyMu.Lock()
	defer s.keyMu.Unlock()
	st, err := os.Stat(s.o.KeyringFile)
	stamp := fmt.Sprint(err)
	if err == nil {
		stamp = fmt.Sprint(st.Size(), st.ModTime().UnixNano(), st.Mode())
	}
	if stamp == s.keyStamp {
		return
	}
	s.keyStamp = stamp
	keys, err := keyring.Read(s.o.KeyringFile)
	same := err == nil && slices.EqualFunc(keys, s.o.Keys, bytes.Equal)
	if err == nil && !same {
		err = s.node.UseKeys(keys)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keysErr = ""
	switch {
	case same:
	case err != nil:
		s.keysErr = err.Error()
		s.o.Log.Error("the changed keyring is invalid; the previous keys stay in use", "error", err)
	default:
		s.o.Keys = keys
		s.o.Log.Info("keyring reloaded", "keys", len(keys), "encrypts", keyring.Fingerprint(keys[0]))
	}
}

// keys returns the fingerprints of the loaded keys. The first key encrypts.
func (s *Source) keys() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]string, len(s.o.Keys))
	for i, k := range s.o.Keys {
		out[i] = keyring.Fingerprint(k)
	}
	return out
}

// Keyring loads a changed keyring, and returns the keys of this node and of the other live nodes.
// It may take seconds.
func (s *Source) Keyring(ctx context.Context) api.Keyring {
	s.reloadKeys()
	own := s.keys()
	out := api.Keyring{File: s.o.KeyringFile, Items: []api.PoolKey{}, Nodes: 1}
	s.mu.Lock()
	out.Error = s.keysErr
	s.mu.Unlock()
	at := map[string]int{}
	for i, id := range own {
		at[id] = i
		out.Items = append(out.Items, api.PoolKey{Fingerprint: id, Loaded: true, Encrypts: i == 0})
	}
	replies := askAll[keysAnswer](ctx, s, askKeys, s.others())
	for _, r := range replies {
		out.Nodes++
		if r.err != nil {
			out.Unanswered = append(out.Unanswered, api.LateNode{Name: r.member.Name, Reason: noAnswer(r.err)})
			continue
		}
		for i, id := range r.got.Keys {
			if _, known := at[id]; !known {
				at[id] = len(out.Items)
				out.Items = append(out.Items, api.PoolKey{Fingerprint: id})
			}
			if i == 0 {
				x := &out.Items[at[id]]
				x.EncryptsOn = append(x.EncryptsOn, r.member.Name)
			}
		}
	}
	for i := range out.Items {
		x := &out.Items[i]
		for _, r := range replies {
			if r.err == nil && !slices.Contains(r.got.Keys, x.Fingerprint) {
				x.MissingOn = append(x.MissingOn, r.member.Name)
			}
		}
	}
	for _, m := range s.node.Members() {
		if m.State == gossip.StateDead {
			out.Unasked = append(out.Unasked, m.Name)
		}
	}
	return out
}
