package generate

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"maps"
	"slices"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Shape is a hash of the inputs of a mesh that decide which policies are in force on its proxies.
// It does not depend on endpoints, so a new instance of a service does not change it.
type Shape [sha256.Size]byte

// Shapes computes the shapes of successive states of a mesh. It caches a hash per dataplane. It is
// not safe for concurrent use.
type Shapes struct {
	dataplanes map[string]shaped // by name
}

// shaped is the hash of a dataplane without its name and addresses.
type shaped struct {
	of  *resource.Resource
	sum [sha256.Size]byte
}

// Of returns the shape of a mesh for policies that may select or read the names and addresses of
// dataplanes, and the shape for those that do not.
func (s *Shapes) Of(m *Mesh) (named, unnamed Shape) {
	next := map[string]shaped{}
	sums := map[[sha256.Size]byte]bool{}
	names, h := sha256.New(), sha256.New()
	for _, d := range m.View.Dataplanes() {
		x := s.dataplanes[d.Name]
		if x.of != d {
			x = shaped{d, sumOf(d)}
		}
		next[d.Name], sums[x.sum] = x, true
		names.Write(append(d.Digest[:], d.Name+"\x00"...))
	}
	s.dataplanes = next
	h.Write(m.View.Catalog[:])
	h.Write(m.View.Common[:])
	m.eachPolicy(func(r *resource.Resource) { h.Write(append(r.Digest[:], r.Key.String()+"\x00"...)) })
	for _, sum := range slices.SortedFunc(maps.Keys(sums), func(a, b [sha256.Size]byte) int {
		return bytes.Compare(a[:], b[:])
	}) {
		h.Write(sum[:])
	}
	h.Sum(unnamed[:0])
	names.Write(unnamed[:])
	names.Sum(named[:0])
	return named, unnamed
}

// sumOf returns a hash of a dataplane without its name and addresses.
func sumOf(d *resource.Resource) [sha256.Size]byte {
	dp, ok := d.Spec.(*resource.Dataplane)
	if !ok { // unreachable
		return sha256.Sum256(d.Digest[:])
	}
	spec := *dp
	spec.Networking.Address, spec.Networking.AdvertisedAddress = "", ""
	text, err := json.Marshal([]any{&spec, d.Labels})
	if err != nil { // impossible for a decoded resource
		return sha256.Sum256(d.Digest[:])
	}
	return sha256.Sum256(text)
}

// eachPolicy calls f with the Mesh, its policies, and the resources to which they refer.
func (m *Mesh) eachPolicy(f func(*resource.Resource)) {
	if m.set == nil || m.Policies == nil {
		return
	}
	if r := m.set.Get(resource.Key{Kind: "Mesh", Name: m.View.Name}); r != nil {
		f(r)
	}
	for i := range m.Policies.Plugins {
		plugin := &m.Policies.Plugins[i]
		kinds := slices.Concat(plugin.Kinds, plugin.Refers)
		for _, l := range plugin.Legacy {
			kinds = append(kinds, l.Descriptor)
		}
		for _, d := range kinds {
			for _, r := range m.set.InMesh(d.Kind, m.View.Name) {
				f(r)
			}
		}
	}
}
