package directory

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/nearside-mesh/nearside/agent/base/plural"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
)

// The pool owns the resources of a published directory. This node's files are only the input of the
// node that publishes it, so that an old checkout on one node has no effect. Until the pool has a
// version of the directory, its files are used like those of other directories.
//
// A directory is published as a whole or not at all, so that each node with the same files
// publishes the same resources.

// Published is the content of a published directory on this node.
type Published struct {
	ID, Path string
	// Resources are the resources of all files, sorted by key, and Digest is their hash.
	Resources []*resource.Resource
	Digest    [sha256.Size]byte
	Revision
	Since time.Time // when this process first saw this content
	Busy  bool      // files are changing
	Fault string    // why this content must not be published, or ""
}

// Published returns the content of the published directories, in the order of their paths. It reads
// the revisions. It is safe for concurrent use.
func (s *Source) Published() []Published {
	list := slices.Clone(*s.published.Load())
	for i := range list {
		p := &list[i]
		r, err := readRevision(p.Path)
		switch {
		case p.Fault != "":
		case err != nil:
			p.Fault = "the revision cannot be read: " + err.Error()
		case len(p.Resources) == 0 && r.Commit == "":
			// The directory may be an empty mount point, or may wait for its first checkout.
			p.Fault = fmt.Sprintf("%s has neither resources nor a revision; to delete all its resources, write a revision "+
				"to %s", p.Path, filepath.Join(p.Path, RevisionFile))
		}
		if p.Commit, p.Author = r.Commit, r.Author; r.Commit != "" {
			p.Time = r.Time
		}
	}
	return list
}

// publishedAs returns the ID of a directory if the pool owns the resources of its files, or "".
func (s *Source) publishedAs(dir string) string {
	d := s.dirs[dir]
	if d == nil || d.Publish == "" || s.o.InPool == nil || !s.o.InPool(d.Publish) {
		return ""
	}
	return d.Publish
}

// collect updates the result of Published. s.mu is held.
func (s *Source) collect() {
	before := map[string]Published{}
	for _, p := range *s.published.Load() {
		before[p.Path] = p
	}
	out := []Published{}
	for _, d := range s.dirs {
		if d.Publish == "" {
			continue
		}
		p := s.content(d)
		p.Since = time.Now()
		if old, ok := before[p.Path]; ok && old.Digest == p.Digest {
			p.Since = old.Since
		}
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b Published) int { return cmp.Compare(a.Path, b.Path) })
	s.published.Store(&out)
}

// content returns the content of a directory. s.mu is held.
func (s *Source) content(d *dirState) Published {
	p := Published{ID: d.Publish, Path: d.Path, Busy: !s.begun}
	if d.fault != nil {
		p.Fault = d.fault[0].Reason
	}
	if st, err := os.Stat(d.Path); err == nil {
		p.Time = changeTime(st)
	}
	holder := map[resource.Key]string{}
	faulty := 0
	for _, path := range s.order {
		f := s.files[path]
		if f == nil || f.dir != d.Path {
			continue
		}
		p.Busy = p.Busy || s.unstable[path] || f.retained()
		if faults := append(slices.Clip(f.faults), f.refused...); len(faults) > 0 && !f.vanished {
			if faulty++; p.Fault == "" {
				p.Fault = faults[0].String()
			}
		}
		owned, before := s.publishedAs(f.dir) != "", f.conflicts
		if owned {
			f.active, f.conflicts = 0, nil
		}
		for _, r := range f.resources {
			if first, taken := holder[r.Key]; taken {
				if owned {
					s.conflict(f, before, r.Key, store.Source{Kind: store.SourceFile, Detail: first})
				}
				continue
			}
			holder[r.Key] = path
			p.Resources = append(p.Resources, r)
			if owned {
				f.active++
			}
		}
		p.Time = latest(p.Time, time.Unix(0, f.sig.ctime))
	}
	if faulty > 1 {
		p.Fault = plural.Count(faulty, "file") + " with faults, the first: " + p.Fault
	}
	slices.SortFunc(p.Resources, func(a, b *resource.Resource) int { return a.Key.Compare(b.Key) })
	p.Digest = digestOf(p.Resources)
	return p
}

// changeTime returns when a file or directory was last written on this node. In contrast to the
// modification time, no program can set it.
func changeTime(st fs.FileInfo) time.Time {
	if sig := signatureOf(st); sig.ctime != 0 {
		return time.Unix(0, sig.ctime)
	}
	return st.ModTime()
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// digestOf returns a hash of resources, which must be sorted by key.
func digestOf(list []*resource.Resource) (out [sha256.Size]byte) {
	h := sha256.New()
	for _, r := range list {
		fmt.Fprintf(h, "%q %x\n", r.Key, r.Digest)
	}
	return [sha256.Size]byte(h.Sum(nil))
}
