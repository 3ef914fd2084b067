package logs

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/model/node"
)

// Streams returns the state of each FIFO, file, and collector, sorted.
func (m *Manager) Streams() []Stream {
	list := append(m.outs.streams(), m.routes.streams()...)
	m.mu.Lock()
	pipes := m.pipes
	m.mu.Unlock()
	if pipes != nil {
		for path, st := range pipes.Stats() {
			s := Stream{Name: path, Kind: KindFIFO, Holder: st.Holder, Open: st.Writer, Backend: st.Labels[labelBackend],
				Stats: st.Stats}
			if p, ok := pipeOf(path, st.Labels); ok {
				s.Destination = string(p.Kind) + " " + p.Target
			}
			if ref, err := node.ParseRef(cmp.Or(st.Labels[labelNode], st.Owner)); err == nil {
				s.Mesh, s.Dataplane = ref.Mesh, ref.Name
			}
			list = append(list, s)
		}
	}
	sortStreams(list)
	return list
}

// Holders returns the number of FIFOs by holder. Without a holder, lines written while the agent is
// down are lost.
func (m *Manager) Holders() map[string]int {
	out := map[string]int{}
	for _, s := range m.Streams() {
		if s.Kind == KindFIFO {
			out[s.Holder]++
		}
	}
	return out
}

// Problems describes all problems but full disks, one text per cause, sorted.
func (m *Manager) Problems() []string {
	found := map[string]bool{}
	m.mu.Lock()
	if m.broken != nil {
		found["the access-log FIFOs are unavailable: "+m.broken.Error()] = true
	}
	m.mu.Unlock()
	list := m.Streams()
	full := map[string]bool{} // destinations on full disks
	for _, s := range list {
		full[s.Destination] = full[s.Destination] || s.Full
	}
	for _, s := range list {
		if s.Health != "" && !full[s.Destination] {
			found[fmt.Sprintf("%s %s: %s", s.Kind, s.Name, strings.ReplaceAll(s.Health, "\n", "; "))] = true
		}
		if s.Kind == KindFIFO && s.Holder == "" {
			found["the access-log FIFOs have no holder: lines that Envoys write while the agent is down are lost"] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}
