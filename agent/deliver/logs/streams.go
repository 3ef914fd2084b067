package logs

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/nearside-mesh/nearside/agent/model/node"
)

// Streams returns what became of the lines: of each FIFO, and of each file and collector behind
// them, sorted.
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

// Holders says who keeps how many FIFOs open beside the agent. Without any the logs that an Envoy
// writes while the agent is away are lost.
func (m *Manager) Holders() map[string]int {
	out := map[string]int{}
	for _, s := range m.Streams() {
		if s.Kind == KindFIFO {
			out[s.Holder]++
		}
	}
	return out
}

// Trouble says what is wrong, one text for each cause, sorted; nothing while all goes well.
func (m *Manager) Trouble() []string {
	found := map[string]bool{}
	m.mu.Lock()
	if m.broken != nil {
		found["the FIFOs of access logs cannot be used: "+m.broken.Error()] = true
	}
	m.mu.Unlock()
	for _, s := range m.Streams() {
		if s.Health != "" {
			found[fmt.Sprintf("%s %s: %s", s.Kind, s.Name, s.Health)] = true
		}
		if s.Kind == KindFIFO && s.Holder == "" {
			found["nobody but the agent keeps the FIFOs of access logs open: lines that Envoys write while the agent is away "+
				"are lost"] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}
