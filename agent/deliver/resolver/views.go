package resolver

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nearside-mesh/nearside/agent/base/files"
	"github.com/nearside-mesh/nearside/agent/compute/names"
	"github.com/nearside-mesh/nearside/agent/deliver/status"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// ViewsFile is the file below paths.state with the dataplanes whose views the resolver serves. Its
// first line has the version of its format and the SHA-256 sum of the rest, which is a JSON array.
const ViewsFile = "dns-views.json"

const (
	viewsHeader  = "nearside-dns-views"
	viewsVersion = "1"
	maxViews     = 64 << 20 // bytes
)

// How long Envoys have to return after a start. Their pauses between attempts are at most 30 s.
const (
	// keepTime is how long the view of a dataplane stays in force without its Envoy.
	keepTime = time.Minute
	// unknownTime is how long names fail if the views of the last run are unknown.
	unknownTime = 30 * time.Second
)

// retryViews is the pause after a failed write.
const retryViews = 10 * time.Second

// storedView is a dataplane with an Envoy on this node.
type storedView struct {
	Mesh string `json:"mesh"`
	Name string `json:"name"`
	// Names are the external names with virtual addresses that its workload sees.
	Names []string `json:"names,omitempty"`
}

func (s *storedView) key() resource.Key {
	return resource.Key{Kind: "Dataplane", Mesh: s.Mesh, Name: s.Name}
}

// views remembers which dataplanes have Envoys on this node, so that the resolver serves their
// views after a restart before the Envoys are back. Resolver.mu protects it, except where a field
// says otherwise.
type views struct {
	file string // "": nothing is stored
	// suspended is set if the resources are unknown in this run: views stay as they were.
	suspended bool
	log       *slog.Logger
	waiting   map[resource.Key]storedView // from the last run, without an Envoy since the start
	keep      time.Time                   // end of waiting
	until     time.Time                   // end of unknown
	last      []byte                      // content of the file after the pending write
	write     chan []byte                 // one slot: the content to be written
	unknown   atomic.Pointer[string]      // why the views of the last run are unknown; nil: they are known
	failed    atomic.Pointer[string]      // why the last write failed; nil: it did not
}

// openViews reads the views of the last run. A file that does not exist is an error, unless the
// state is new.
func openViews(file string, isNew bool, now time.Time, log *slog.Logger) *views {
	v := &views{file: file, log: log, write: make(chan []byte, 1), keep: now.Add(keepTime)}
	if file == "" {
		return v
	}
	list, content, err := readViews(file)
	switch {
	case errors.Is(err, fs.ErrNotExist) && isNew:
		return v
	case errors.Is(err, fs.ErrNotExist):
		err = errors.New("it does not exist, although the agent has run before")
	}
	if err != nil {
		v.until = now.Add(unknownTime)
		why := fmt.Sprintf("the DNS views of the last run are unknown (%s: %v), so names that a view may change fail until "+
			"the Envoys of their workloads are back, or until %s; the agent writes a new file then",
			file, err, v.until.UTC().Format(time.RFC3339))
		v.unknown.Store(&why)
		log.Error(why)
		return v
	}
	v.last = content
	if len(list) > 0 {
		v.waiting = make(map[resource.Key]storedView, len(list))
	}
	for i := range list {
		v.waiting[list[i].key()] = list[i]
	}
	return v
}

// readViews returns the stored views and the content of the file.
func readViews(file string) (list []storedView, content []byte, err error) {
	f, err := files.OpenRegular(file)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	content, err = io.ReadAll(io.LimitReader(f, maxViews+1))
	switch {
	case err != nil:
		return nil, nil, err
	case len(content) > maxViews:
		return nil, nil, fmt.Errorf("it has more than %d bytes", maxViews)
	}
	head, body, _ := bytes.Cut(content, []byte("\n"))
	words := strings.Fields(string(head))
	sum := sha256.Sum256(body)
	switch {
	case len(words) != 3 || words[0] != viewsHeader:
		return nil, nil, errors.New("it is damaged: its first line is invalid")
	case words[1] != viewsVersion:
		return nil, nil, fmt.Errorf("it has the format %.20q, and this release supports %s", words[1], viewsVersion)
	case words[2] != hex.EncodeToString(sum[:]):
		return nil, nil, errors.New("it is damaged: its content does not match its checksum")
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, nil, fmt.Errorf("it is damaged: %w", err)
	}
	return list, content, nil
}

// encodeViews returns the content of the file. The list is sorted.
func encodeViews(list []storedView) []byte {
	body, _ := json.Marshal(list) // strings always have a JSON form
	sum := sha256.Sum256(body)
	return fmt.Appendf(nil, "%s %s %x\n%s", viewsHeader, viewsVersion, sum, body)
}

// expire ends the times of waiting and unknown, except in the kept meshes. It returns the time
// until the next end, or 0.
func (v *views) expire(now time.Time, kept []string) time.Duration {
	if v.suspended {
		return 0
	}
	if v.unknown.Load() != nil && !now.Before(v.until) {
		v.unknown.Store(nil)
		v.log.Info("the DNS views of the workloads on this node are known again")
	}
	late := !now.Before(v.keep)
	if late {
		maps.DeleteFunc(v.waiting, func(k resource.Key, _ storedView) bool { return !slices.Contains(kept, k.Mesh) })
	}
	switch {
	case v.unknown.Load() != nil:
		return v.until.Sub(now)
	case len(v.waiting) > 0 && !late:
		return v.keep.Sub(now)
	}
	return 0
}

// local returns the dataplanes with an Envoy on this node, by mesh: those of a result, and those of
// the last run that have not returned yet.
func (v *views) local(last *status.Result) map[string][]string {
	out := map[string][]string{}
	if last == nil {
		last = &status.Result{}
	}
	for id := range last.Proxies {
		out[id.Mesh] = append(out[id.Mesh], id.Name)
		delete(v.waiting, resource.Key{Kind: "Dataplane", Mesh: id.Mesh, Name: id.Name})
	}
	for k := range v.waiting {
		out[k.Mesh] = append(out[k.Mesh], k.Name)
	}
	return out
}

// fails returns the external names that fail now: those of dataplanes whose mesh is not loaded,
// and, if the views of the last run are unknown, all.
func (v *views) fails(o *names.Options, meshes []names.Mesh) (out names.Unknown) {
	if v.unknown.Load() != nil {
		return names.UnknownViews(o, meshes)
	}
	for k, s := range v.waiting {
		if !slices.ContainsFunc(meshes, func(m names.Mesh) bool { return m.View.Name == k.Mesh }) {
			out.Names = append(out.Names, s.Names...)
		}
	}
	slices.Sort(out.Names)
	out.Names = slices.Compact(out.Names)
	return out
}

// save stores the dataplanes of a table, unless the views of the last run are unknown: a file
// without some of them would seem to be complete. A suspended run knows none.
func (v *views) save(t *names.Table, local map[string][]string) {
	if v.file == "" || v.suspended || v.unknown.Load() != nil {
		return
	}
	list, domains := []storedView{}, t.Domains()
	for mesh, dataplanes := range local {
		for _, name := range unique(dataplanes) {
			s := storedView{Mesh: mesh, Name: name}
			if s.Names = domains[s.key()]; s.Names == nil {
				s.Names = v.waiting[s.key()].Names
			}
			list = append(list, s)
		}
	}
	slices.SortFunc(list, func(a, b storedView) int {
		return cmp.Or(strings.Compare(a.Mesh, b.Mesh), strings.Compare(a.Name, b.Name))
	})
	content := encodeViews(list)
	if bytes.Equal(content, v.last) {
		return
	}
	v.last = content
	select {
	case <-v.write: // it is outdated
	default:
	}
	v.write <- content
}

// run writes the file whenever its content changes, until ctx ends.
func (v *views) run(ctx context.Context) {
	var content []byte
	var retry <-chan time.Time
	for {
		select {
		case content = <-v.write:
		case <-retry:
		case <-ctx.Done():
			select {
			case content = <-v.write:
				v.store(content)
			default:
				if retry != nil {
					v.store(content)
				}
			}
			return
		}
		if retry = nil; !v.store(content) {
			retry = time.After(retryViews)
		}
	}
}

// store writes the file, and reports whether it could be written.
func (v *views) store(content []byte) bool {
	err := files.ReplacePrivate(v.file, content)
	if err == nil {
		v.failed.Store(nil)
		return true
	}
	why := fmt.Sprintf("the DNS views of the workloads cannot be stored (%v), so a restart of the agent may serve "+
		"outdated ones for up to %s; make the disk of paths.state writable", err, keepTime)
	if v.failed.Swap(&why) == nil {
		v.log.Error(why)
	}
	return false
}

// problem returns the faults of the stored views, or "".
func (v *views) problem() (out string) {
	for _, p := range []*string{v.unknown.Load(), v.failed.Load()} {
		if p != nil {
			out = joinReasons(out, *p)
		}
	}
	return out
}
