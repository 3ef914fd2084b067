package kubernetes

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/base/plural"
	"github.com/nearside-mesh/nearside/agent/model/api"
)

// Marker is the name of a file that the watcher creates in each of its directories and never
// removes.
const Marker = ".nearside-kubernetes"

const (
	statusFile = "status.json"
	maxStatus  = 1 << 20 // bytes
	maxCount   = 1 << 31
	// staleAfter is the age of the status of a watcher that does not run: it touches the file every
	// 15 seconds.
	staleAfter = time.Minute
	checkName  = "kubernetes"
)

// Status is the part of a watcher's status that the agent uses.
type Status struct {
	API struct {
		Reachable bool              `json:"reachable"`
		AwaySince *time.Time        `json:"awaySince"`
		Errors    map[string]string `json:"errors"` // by kind of object
	} `json:"api"`
	Pods      int      `json:"pods"`
	Services  int      `json:"services"`
	WaitingOn []string `json:"waitingOn"`
	Fault     string   `json:"writeError"`
	Notes     []string `json:"notes"`
}

// Decode decodes a status. Fields that it does not know belong to later versions.
func Decode(b []byte) (*Status, error) {
	var s Status
	if err := json.Unmarshal(b, &s); err != nil {
		return nil, errors.New("it is not the JSON of a watcher's status")
	}
	for _, n := range []struct {
		field string
		value int
	}{{"pods", s.Pods}, {"services", s.Services}} {
		if n.value < 0 || n.value > maxCount {
			return nil, fmt.Errorf("%s: %d is not a number of objects", n.field, n.value)
		}
	}
	if s.API.Reachable != (s.API.AwaySince == nil) {
		return nil, errors.New("api.awaySince must be set if, and only if, api.reachable is false")
	}
	return &s, nil
}

// Dir is a resource directory.
type Dir struct {
	Path  string
	Wants bool // only the watcher writes it, also before it has the [Marker]
}

// Checks returns a check for each watcher that writes some of the directories.
func Checks(dirs []Dir, now time.Time) (out []api.Check) {
	seen := map[string]bool{}
	for _, d := range dirs {
		path := filepath.Join(filepath.Dir(filepath.Clean(d.Path)), statusFile)
		if seen[path] {
			continue
		}
		if _, err := os.Lstat(filepath.Join(d.Path, Marker)); err != nil && !d.Wants {
			continue
		}
		s, at, err := read(path, d.Path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		seen[path] = true
		c := api.Check{Name: checkName, OK: true, Degraded: true, Command: "ls -l " + path}
		if err != nil {
			c.Error = true
			c.Reason = fmt.Sprintf("the status of the watcher in %s cannot be used: %v; restart the watcher, which writes it",
				path, err)
		} else {
			s.describe(&c, path, at, now)
		}
		out = append(out, c)
	}
	return out
}

// read returns the status in a file beside a directory of the watcher, and when it was written.
func read(path, dir string) (*Status, time.Time, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, syscall.ELOOP) {
		return nil, time.Time{}, errors.New("it is a symbolic link")
	}
	if err != nil {
		return nil, time.Time{}, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, time.Time{}, err
	}
	owner := ownerOf(st)
	switch above, err := os.Stat(dir); {
	case !st.Mode().IsRegular():
		return nil, time.Time{}, errors.New("it is not a regular file")
	case owner != 0 && owner != os.Geteuid() && (err != nil || owner != ownerOf(above)):
		return nil, time.Time{}, fmt.Errorf("it belongs to uid %d, who does not own %s", owner, dir)
	case st.Mode().Perm()&0o022 != 0:
		return nil, time.Time{}, fmt.Errorf("its mode %04o lets other users write it", st.Mode().Perm())
	case st.Size() > maxStatus:
		return nil, time.Time{}, fmt.Errorf("it has %d bytes, and at most %d are allowed", st.Size(), maxStatus)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxStatus))
	if err != nil {
		return nil, time.Time{}, err
	}
	s, err := Decode(b)
	return s, st.ModTime(), err
}

// ownerOf returns the uid of the owner of a file, or -1.
func ownerOf(st fs.FileInfo) int {
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		return int(sys.Uid)
	}
	return -1
}

// describe completes a check with a status that was written at a time.
func (s *Status) describe(c *api.Check, path string, at, now time.Time) {
	const stays = "; its resources stay in force, but changes of the cluster do not arrive. "
	switch {
	case now.Sub(at) > staleAfter:
		c.Error = true
		c.Reason = fmt.Sprintf("the watcher has not written %s since %s, so it does not run"+stays+"Start it again, and see "+
			"its log", path, at.UTC().Format(time.RFC3339))
	case at.Sub(now) > staleAfter:
		c.Reason = fmt.Sprintf("the time of %s, %s, is in the future, so it is unknown whether the watcher runs; set the "+
			"clock of the host", path, at.UTC().Format(time.RFC3339))
	case s.Fault != "":
		c.Error = true
		c.Reason = "the watcher cannot write its files: " + shown(s.Fault) + "; correct that, and it tries again"
	case !s.API.Reachable:
		c.Reason = "the Kubernetes API does not answer the watcher since " + s.API.AwaySince.UTC().Format(time.RFC3339) +
			s.errors() + stays + "Check the API server, and the rights of the watcher"
	case len(s.WaitingOn) > 0:
		c.Reason = "the watcher has not read all objects yet, of " + shown(strings.Join(s.WaitingOn, ", ")) + stays +
			"See its log if this lasts"
	default:
		c.Degraded, c.Command = false, ""
		c.Reason = fmt.Sprintf("the watcher follows %s of this node and %s", plural.Count(s.Pods, "pod"),
			plural.Count(s.Services, "Service"))
		if n := len(s.Notes); n > 0 {
			c.Reason += fmt.Sprintf("; %s in %s, the first: %s", plural.Count(n, "note"), path, shown(s.Notes[0]))
		}
	}
}

// errors returns the first error of the API, and the kinds of objects with one.
func (s *Status) errors() string {
	kinds := slices.Sorted(maps.Keys(s.API.Errors))
	if len(kinds) == 0 {
		return ""
	}
	return " (" + shown(strings.Join(kinds, ", ")+": "+s.API.Errors[kinds[0]]) + ")"
}

// maxShown limits a text of the watcher in a message.
const maxShown = 300

func shown(text string) string { return clip.PrintableText(text, maxShown) }
