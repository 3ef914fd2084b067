package policy

import "github.com/nearside-mesh/nearside/agent/resource"

const kindMesh = "Mesh"

type Index struct {
	refers map[string][]*resource.Resource
}

func (x *Index) legacyOf(kind string) []*resource.Resource { return nil }

type legacyRules struct{}

func (l *legacyRules) outbound(kind, service string) *resource.Resource      { return nil }
func (l *legacyRules) inbound(kind string, inbound int) []*resource.Resource { return nil }
func (l *legacyRules) proxy(kind string) *resource.Resource                  { return nil }
func (s Subset) Holds(o Subset) bool                                         { return false }
