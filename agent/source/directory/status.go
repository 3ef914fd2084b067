package directory

import (
	"fmt"
	"maps"
	"slices"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Files returns the state of every file, sorted by path, after the directories that cannot be read.
func (s *Source) Files() []api.FileStatus { return *s.status.Load() }

func (s *Source) dirFault(d *dirState, err error) {
	why := fmt.Sprintf("the resource directory cannot be read: %v; its loaded resources stay in force. "+
		"Create it (an empty directory removes all resources), or set resources.dir", err)
	if d.fault == nil || d.fault[0].Reason != why {
		s.o.Log.Warn("the resource directory cannot be read; its loaded resources stay in force",
			"dir", d.Path, "error", err)
	}
	d.fault = resource.Faults{{File: d.Path, Reason: why}}
}

// logFaults logs changed faults of a file. prev is nil for a new file.
func (s *Source) logFaults(prev, f *fileState) {
	if prev == nil {
		prev = &fileState{}
	}
	if len(f.refused) > 0 && !slices.Equal(prev.refused, f.refused) {
		s.o.Log.Error("resources of a file were refused", "file", f.path, "resources", len(f.refused),
			"first", f.refused[0].String())
	}
	switch {
	case slices.Equal(prev.faults, f.faults):
	case len(f.faults) == 0:
		s.o.Log.Info("resource file is valid again", "file", f.path)
	default:
		s.o.Log.Error("resource file has faults", "file", f.path, "faults", len(f.faults), "first", f.faults[0].String(),
			"retained", len(f.resources))
	}
}

// publish updates the results of Files and Published. s.mu is held.
func (s *Source) publish() {
	s.collect()
	out := make([]api.FileStatus, 0, len(s.files)+1)
	for _, path := range slices.Sorted(maps.Keys(s.dirs)) {
		if d := s.dirs[path]; d.fault != nil {
			out = append(out, api.FileStatus{Path: path, Faults: d.fault})
		}
	}
	for _, path := range s.order {
		f := s.files[path]
		if f == nil {
			continue
		}
		st := api.FileStatus{Path: path, Resources: f.active, Loaded: f.loaded, Exposed: f.exposed(),
			Conflicts: maps.Clone(f.conflicts)}
		if !f.vanished {
			st.Faults = f.faults
		}
		if f.retained() {
			st.Missing = f.missing()
			if !f.since.IsZero() {
				st.KeptUntil = f.until
			}
		}
		st.Stale = len(f.resources) > 0 && (len(st.Faults) > 0 || st.Missing != "")
		if !f.vanished {
			st.Faults = append(slices.Clip(st.Faults), f.refused...) // refused resources do not make the others stale
		}
		out = append(out, st)
	}
	s.status.Store(&out)
}
