package directory

import (
	"path/filepath"

	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/source/kubernetes"
)

// list returns the paths of the files in a directory. It sets the fault of a directory that cannot
// be listed, or that must not be used. s.mu is held.
func (s *Source) list(d *dirState) []string {
	names, marked, err := listResources(d.Path, s.o.Files)
	switch {
	case err != nil:
		s.dirFault(d, err)
	case s.unmounted(d, len(names), marked):
		s.unmountedFault(d)
	default:
		d.fault = nil
	}
	return names
}

// unmounted reports whether a directory has lost its content without its writer. The watcher of
// Kubernetes marks its directories when their files are complete and never removes the marker, so
// that an empty directory without it is another one, such as that below a missing mount. s.mu is
// held.
func (s *Source) unmounted(d *dirState, files int, marked bool) bool {
	d.marked = d.marked || marked
	if marked || files > 0 || !d.marked {
		return false
	}
	for path, f := range s.files {
		if filepath.Dir(path) == d.Path && len(f.resources) > 0 {
			return true
		}
	}
	return false
}

// WatcherChecks returns the checks of the watchers of Kubernetes that write some of the
// directories.
func (s *Source) WatcherChecks() []api.Check {
	var dirs []kubernetes.Dir
	for _, d := range s.o.Dirs {
		dirs = append(dirs, kubernetes.Dir{Path: d.Path, Wants: d.Role == access.TemplateKubernetes})
	}
	return kubernetes.Checks(dirs, s.o.Now())
}

// unmountedFault records the fault of such a directory.
func (s *Source) unmountedFault(d *dirState) {
	marker := filepath.Join(d.Path, kubernetes.Marker)
	if d.fault == nil {
		s.o.Log.Warn("the resource directory is empty and has no marker of the watcher; its loaded resources stay in force",
			"dir", d.Path, "marker", marker)
	}
	d.fault = resource.Faults{{File: d.Path, Reason: "the resource directory is empty and has no marker of the watcher " +
		"of Kubernetes, as if it were not mounted; its loaded resources stay in force. Mount it again, or restart the " +
		"watcher; if its resources must go, create the file " + marker}}
}
