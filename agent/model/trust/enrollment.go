package trust

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/agent/base/strict"
	"github.com/nearside-mesh/nearside/agent/model/access"
)

// Enrollment says what a node may publish. It is the body of a record of the kind [KindEnrollment],
// whose name is the ID of the node.
type Enrollment struct {
	Key      ID       `json:"key"`              // ID of the node
	Name     string   `json:"name"`             // display name of the node
	Services []string `json:"services"`         // patterns of kuma.io/service; * matches any characters
	Meshes   []string `json:"meshes,omitempty"` // patterns; empty: all
	// Tags has patterns of further tags by key; the key "*" stands for all other keys. Tags that are
	// not listed are refused, except kuma.io/protocol.
	Tags     map[string][]string `json:"tags,omitempty"`
	Zone     string              `json:"zone,omitempty"` // empty: any
	NotAfter time.Time           `json:"notAfter,omitzero"`
}

// maxPatterns limits each list of an enrollment.
const maxPatterns = 256

// DecodeEnrollment decodes and checks an enrollment.
func DecodeEnrollment(body []byte) (*Enrollment, error) {
	e := &Enrollment{}
	root, faults := decode(body, e)
	if len(faults) == 0 {
		faults = e.check()
	}
	return e, located(root, faults)
}

// Encode returns the body of the record.
func (e *Enrollment) Encode() ([]byte, error) {
	if err := e.check().Err(); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(e)
	return b.Bytes(), err
}

func (e *Enrollment) check() (out strict.Faults) {
	fault := func(field, format string, args ...any) {
		out = append(out, strict.Fault{Field: field, Reason: fmt.Sprintf(format, args...)})
	}
	if e.Key == (ID{}) {
		fault("key", "is missing; give the ID of the node (nearside members -o json)")
	}
	if e.Name == "" || len(e.Name) > maxName || strings.ContainsFunc(e.Name, unprintable) {
		fault("name", "%.64q is not the name of a node; use 1 to %d printable characters", e.Name, maxName)
	}
	lists := map[string][]string{"services": e.Services, "meshes": e.Meshes}
	for key, values := range e.Tags {
		lists[fmt.Sprintf("tags[%q]", key)] = values
	}
	for _, field := range slices.Sorted(maps.Keys(lists)) {
		if n := len(lists[field]); n > maxPatterns {
			fault(field, "has %d patterns, at most %d are allowed", n, maxPatterns)
		}
	}
	if len(e.Tags) > maxPatterns {
		fault("tags", "has %d keys, at most %d are allowed", len(e.Tags), maxPatterns)
	}
	if len(e.Zone) > 63 {
		fault("zone", "has %d bytes, at most 63 are allowed", len(e.Zone))
	}
	return out
}

// expired reports whether the enrollment has ended.
func (e *Enrollment) expired(at time.Time) bool { return !e.NotAfter.IsZero() && at.After(e.NotAfter) }

// Tags of dataplanes with a meaning.
const (
	tagService  = "kuma.io/service"
	tagZone     = "kuma.io/zone"
	tagProtocol = "kuma.io/protocol"
)

// AllowsMesh returns "" if the node may publish items of a mesh, or the reason.
func (e *Enrollment) AllowsMesh(mesh string) string {
	if mesh != "" && len(e.Meshes) > 0 && !access.Match(e.Meshes, mesh) {
		return fmt.Sprintf("the enrollment of node %s does not allow the mesh %s", e.Name, mesh)
	}
	return ""
}

// AllowsService returns "" if the node may serve a service, or the reason.
func (e *Enrollment) AllowsService(service string) string {
	if !access.Match(e.Services, service) {
		return fmt.Sprintf("the enrollment of node %s does not allow the service %s", e.Name, service)
	}
	return ""
}

// AllowsAllServices returns "" if the node may serve every service, or the reason.
func (e *Enrollment) AllowsAllServices() string {
	if !slices.Contains(e.Services, "*") {
		return fmt.Sprintf("the enrollment of node %s does not allow a zone proxy, which serves all services: it needs "+
			"services [\"*\"]", e.Name)
	}
	return ""
}

// AllowsZone returns "" if the items of the node may be in a zone, or the reason.
func (e *Enrollment) AllowsZone(zone string) string {
	if e.Zone != "" && zone != "" && zone != e.Zone {
		return fmt.Sprintf("the enrollment of node %s allows the zone %s, not %s", e.Name, e.Zone, zone)
	}
	return ""
}

// AllowsTags returns "" if the node may give a dataplane some tags, or the reason for the first one
// that it may not.
func (e *Enrollment) AllowsTags(tags map[string]string) string {
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		value := tags[key]
		why := ""
		switch patterns, listed := e.Tags[key]; {
		case key == tagService:
			why = e.AllowsService(value)
		case key == tagZone:
			why = e.AllowsZone(value)
		case listed && !access.Match(patterns, value), !listed && key != tagProtocol && !access.Match(e.Tags["*"], value):
			why = fmt.Sprintf("the enrollment of node %s does not allow the tag %s: %s", e.Name, key, value)
		}
		if why != "" {
			return why
		}
	}
	return ""
}
