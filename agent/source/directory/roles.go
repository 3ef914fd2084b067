package directory

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/nearside-mesh/nearside/agent/compute/danger"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// dirState is the state of one directory.
type dirState struct {
	Dir
	fault resource.Faults // why it cannot be listed, or nil
	event time.Time       // time of the last event in it
	// marked is set for a directory of the watcher of Kubernetes: it had the marker, or has its role.
	marked bool
}

// unseen reports whether the state of a file is unknown, because its directory cannot be listed. A
// file outside all directories may have moved to any of them. s.mu is held.
func (s *Source) unseen(path string) bool {
	if d := s.dirs[filepath.Dir(path)]; d != nil {
		return d.fault != nil
	}
	return s.anyFault()
}

// anyFault reports whether a directory cannot be listed. s.mu is held.
func (s *Source) anyFault() bool {
	for _, d := range s.dirs {
		if d.fault != nil {
			return true
		}
	}
	return false
}

// role returns the role of a file's directory, or "".
func (s *Source) role(path string) string {
	if d := s.dirs[filepath.Dir(path)]; d != nil {
		return d.Role
	}
	return ""
}

// confined reports whether symbolic links in a file's directory must stay inside: its writers may
// have fewer rights than the agent, or its content leaves the node.
func (s *Source) confined(path string) bool {
	d := s.dirs[filepath.Dir(path)]
	return d != nil && (d.Role != "" || d.Publish != "")
}

// admit returns the resources that a file's directory may contain, and a fault for each other one.
func (s *Source) admit(path string, rs []*resource.Resource) (admitted []*resource.Resource, refused resource.Faults) {
	if d := s.dirs[filepath.Dir(path)]; d != nil && d.Publish != "" && s.o.OfNode != nil {
		for _, r := range rs {
			if s.o.OfNode(r.Kind) {
				refused = append(refused, resource.Fault{File: path, Resource: r.Key.String(), Reason: fmt.Sprintf(
					"%s is refused: a %s belongs to the node that runs it and cannot be published. Move it to a directory "+
						"without publish on that node", r.Key, r.Kind)})
			} else {
				admitted = append(admitted, r)
			}
		}
		rs = admitted
	}
	admitted, denied := s.admitRole(path, rs)
	return admitted, append(refused, denied...)
}

// admitRole returns the resources that the role of a file's directory allows, and a fault for each
// other one. The role must allow both create and update, because the previous state determines
// which of them a file does.
func (s *Source) admitRole(path string, rs []*resource.Resource) (admitted []*resource.Resource,
	refused resource.Faults) {
	role := s.role(path)
	if role == "" {
		return rs, nil
	}
	may := s.o.May
	if may == nil {
		may = func(string, access.Action) error { return errors.New("roles are not known") }
	}
	for _, r := range rs {
		dangers := danger.Of(r)
		act := func(verb string) error {
			a := access.ActionOn(verb, r.Key)
			a.Features = access.FeaturesOf(dangers)
			return may(role, a)
		}
		err := cmp.Or(act(access.VerbCreate), act(access.VerbUpdate))
		if err == nil {
			admitted = append(admitted, r)
			continue
		}
		var f *access.ForbiddenError
		if errors.As(err, &f) && len(dangers) > 0 {
			f.Danger = dangers[0].String()
		}
		refused = append(refused, resource.Fault{File: path, Resource: r.Key.String(), Reason: fmt.Sprintf(
			"%s is refused: %v. Move it to a directory with such a role, or change the role of %s (resources.dir, api.roles)",
			r.Key, err, filepath.Dir(path))})
	}
	return admitted, refused
}
