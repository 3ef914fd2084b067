package directory

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// dirState is what is known of one directory.
type dirState struct {
	Dir
	fault resource.Faults // why it cannot be listed; nil when it can
}

// unseen says whether it is not known what has become of a file: its directory cannot be listed. A
// file of no directory may have moved to any. s.mu is held.
func (s *Source) unseen(path string) bool {
	if d := s.dirs[filepath.Dir(path)]; d != nil {
		return d.fault != nil
	}
	return s.anyFault()
}

// anyFault says whether a directory cannot be listed. s.mu is held.
func (s *Source) anyFault() bool {
	for _, d := range s.dirs {
		if d.fault != nil {
			return true
		}
	}
	return false
}

// role returns the role of the directory of a file, "" for none.
func (s *Source) role(path string) string {
	if d := s.dirs[filepath.Dir(path)]; d != nil {
		return d.Role
	}
	return ""
}

// admit returns the resources that a file may have by the role of its directory, and a fault for
// each other one. The role must allow to create and to update a resource: which of the two a file
// does depends on what was there before.
func (s *Source) admit(path string, rs []*resource.Resource) (admitted []*resource.Resource, refused resource.Faults) {
	role := s.role(path)
	if role == "" {
		return rs, nil
	}
	may := s.o.May
	if may == nil {
		may = func(string, access.Action) error { return errors.New("roles are not known") }
	}
	for _, r := range rs {
		err := may(role, access.ActionOn(access.VerbCreate, r.Key))
		if err == nil {
			err = may(role, access.ActionOn(access.VerbUpdate, r.Key))
		}
		if err == nil {
			admitted = append(admitted, r)
			continue
		}
		refused = append(refused, resource.Fault{File: path, Resource: r.Key.String(), Reason: fmt.Sprintf(
			"%s is refused: %v. Move it to a directory with such a role, or change the role of %s (resources.dir, api.roles)",
			r.Key, err, filepath.Dir(path))})
	}
	return admitted, refused
}
