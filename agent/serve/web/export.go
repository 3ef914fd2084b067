package web

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/model/api"
)

// ExportOptions configures [Export].
type ExportOptions struct {
	Dir     string // to write to: absent, empty, or an earlier export
	Backend http.Handler
	Files   []string // paths that the page shows, for its title
	Version string   // of the program
	// Scrub removes from an answer what differs in each run. Nil: nothing.
	Scrub func([]byte) []byte
}

// Exported is the result of [Export].
type Exported struct {
	Dir     string `json:"dir"`
	Files   int    `json:"files"`
	Bytes   int    `json:"bytes"`
	Omitted int    `json:"omitted"` // answers beyond the limits
	Faults  int    `json:"faults"`  // resource files with faults
}

// Limits of an export.
const (
	maxExported      = 50_000    // answers
	maxExportedBytes = 512 << 20 // of them
)

// listFile lists the files of an export, one per line. It marks a directory as an export.
const listFile = ".nearside-export"

// fromFile is the script that explains how to open an export.
const fromFile = "from-file.js"

// Export writes the page, and the answers that it reads, as static files. The same answers give the
// same bytes. It does not write into a directory with files of others.
func Export(ctx context.Context, o ExportOptions) (*Exported, error) {
	page, err := pageAssets()
	if err != nil {
		return nil, err
	}
	x := &exporter{o: o, ctx: ctx, index: map[string]string{}, files: map[string][]byte{}}
	if err := x.answers(); err != nil {
		return nil, err
	}
	for name, a := range page {
		x.files[name] = a.plain
	}
	x.files[indexFile] = bytes.Replace(page[indexFile].plain, []byte("<script type=\"module\""),
		[]byte("<script src=\""+fromFile+"\"></script>\n<script type=\"module\""), 1)
	if err := x.document("api/index.json", x.index); err != nil {
		return nil, err
	}
	if err := x.session(); err != nil {
		return nil, err
	}
	if err := x.write(); err != nil {
		return nil, err
	}
	return &x.out, nil
}

type exporter struct {
	o     ExportOptions
	ctx   context.Context // of Export
	index map[string]string
	files map[string][]byte // by path
	out   Exported
}

// document adds a file with a value as JSON.
func (x *exporter) document(name string, v any) error {
	text, err := json.Marshal(v)
	x.files[name] = append(text, '\n')
	return err
}

// session adds ui/session.
func (x *exporter) session() error {
	var info api.Info
	if raw, ok := x.files["api/"+x.index[""]]; ok {
		_ = json.Unmarshal(raw, &info) // else the node has no name
	}
	return x.document("ui/session", Session{Mode: ModeStatic, Login: LoginURL, Files: append([]string{}, x.o.Files...),
		Product: "nearside", Version: x.o.Version, Instance: info.Instance, Node: info.Node,
		Remedy: "run nearside ui on the node, or nearside ui -f with the files"})
}

// read adds the answer to a request, with all pages of a list, and decodes it. It returns false if
// the backend refuses, or has no such path.
func (x *exporter) read(path string, into any) (bool, error) {
	key := strings.TrimPrefix(path, "/")
	if len(x.index) >= maxExported || x.out.Bytes >= maxExportedBytes {
		x.out.Omitted++
		return false, nil
	}
	status, header, body, err := Get(x.ctx, x.o.Backend, "", path)
	switch {
	case err != nil:
		return false, fmt.Errorf("read %s: %w", path, err)
	case status == http.StatusNotFound, status == http.StatusBadRequest, status == http.StatusForbidden,
		status == http.StatusServiceUnavailable, status == http.StatusMethodNotAllowed:
		return false, nil
	case status != http.StatusOK:
		return false, fmt.Errorf("read %s: the agent answers with the status %d; repeat the command", path, status)
	case !strings.HasPrefix(header.Get("Content-Type"), "application/json"):
		return false, nil
	}
	if x.o.Scrub != nil {
		body = x.o.Scrub(body)
	}
	sum := sha256.Sum256(body)
	name := hex.EncodeToString(sum[:8]) + ".json"
	x.index[key], x.files["api/"+name] = name, body
	x.out.Bytes += len(body)
	if into != nil {
		err = json.Unmarshal(body, into)
	}
	return err == nil, err
}

// list reads the largest page of a list, which may need a query, as the answer to its path, and
// returns its items.
func (x *exporter) list(path, query string) ([]item, error) {
	var doc struct {
		Items []item  `json:"items"`
		Next  *string `json:"next"`
	}
	large := path + "?" + query + "size=10000"
	ok, err := x.read(large, &doc)
	if err != nil {
		return nil, err
	}
	if ok {
		key := strings.TrimPrefix(large, "/")
		name := x.index[key]
		delete(x.index, key)
		x.index[strings.TrimPrefix(path, "/")] = name
		if doc.Next != nil {
			x.out.Omitted++
			err = x.last("api/" + name)
		}
		return doc.Items, err
	}
	_, err = x.read(path, &doc) // it has no pages
	return doc.Items, err
}

// last makes a page of a list the last one.
func (x *exporter) last(name string) error {
	doc := map[string]json.RawMessage{}
	if err := json.Unmarshal(x.files[name], &doc); err != nil {
		return err
	}
	doc["next"] = json.RawMessage("null")
	text, err := json.Marshal(doc)
	x.files[name] = text
	return err
}

// item is an item of a list.
type item struct {
	Kind   string `json:"kind"`   // of the list of kinds
	Plural string `json:"plural"` // of the list of kinds
	Global bool   `json:"global"` // of the list of kinds
	// Resource is the resource of a list of resources.
	Resource struct{ Mesh, Name string } `json:"resource"`
}

// withMeta is the query of lists of resources with their sources and revisions.
const withMeta = "meta=true&"

// escaped escapes a segment as encodeURIComponent does.
func escaped(s string) string {
	return strings.NewReplacer("+", "%20", "%21", "!", "%27", "'", "%28", "(", "%29", ")", "%2A", "*", "%7E", "~").
		Replace(url.QueryEscape(s))
}

// answers reads everything that the page shows.
func (x *exporter) answers() error {
	for _, path := range []string{"/", "/v1/status", "/v1/pool", "/v1/accesslogs"} {
		if _, err := x.read(path, nil); err != nil {
			return err
		}
	}
	for _, path := range []string{"/v1/dataplanes", "/v1/services", "/v1/edges", "/v1/members", "/v1/conflicts", "/v1/dns",
		"/v1/history"} {
		if _, err := x.list(path, ""); err != nil {
			return err
		}
	}
	var status api.Status
	if raw, ok := x.files["api/"+x.index["v1/status"]]; ok {
		if err := json.Unmarshal(raw, &status); err != nil {
			return err
		}
	}
	for _, f := range status.Files {
		if len(f.Faults) > 0 {
			x.out.Faults++
		}
	}
	kinds, err := x.list("/v1/kinds", "")
	if err != nil {
		return err
	}
	var meshes []string
	for _, k := range kinds {
		resources, err := x.list("/"+k.Plural, withMeta)
		if err != nil {
			return err
		}
		for _, path := range []string{"/v1/applied/" + k.Plural, "/v1/schemas/" + escaped(k.Kind),
			"/v1/names?kind=" + escaped(k.Kind)} {
			if _, err := x.read(path, nil); err != nil {
				return err
			}
		}
		for _, r := range resources {
			if k.Kind == "Mesh" {
				meshes = append(meshes, r.Resource.Name)
			}
			if err := x.resource(k, r); err != nil {
				return err
			}
		}
	}
	for _, mesh := range meshes {
		for _, k := range kinds {
			if k.Global {
				continue
			}
			if _, err := x.list("/meshes/"+escaped(mesh)+"/"+k.Plural, withMeta); err != nil {
				return err
			}
			if _, err := x.read("/v1/names?kind="+escaped(k.Kind)+"&mesh="+escaped(mesh), nil); err != nil {
				return err
			}
		}
	}
	return nil
}

// resource reads what the page shows of a resource.
func (x *exporter) resource(k, listed item) error {
	r := listed.Resource
	own, short := "/"+k.Plural+"/"+escaped(r.Name), "/"+escaped(r.Name)
	if !k.Global {
		own, short = "/meshes/"+escaped(r.Mesh)+own, "/"+escaped(r.Mesh)+short
	}
	paths := []string{own, "/v1/history/" + k.Plural + short}
	switch k.Kind {
	case "Dataplane":
		for _, sub := range []string{"status", "policies", "backends", "sources"} {
			paths = append(paths, "/v1/dataplanes"+short+"/"+sub)
		}
		paths = append(paths, own+"/_config", own+"/_config?shadow=true", own+"/_rules?include=fields")
	case "ZoneEgress", "ZoneIngress":
		paths = append(paths, "/v1/"+k.Plural+short+"/status", own+"/_config", own+"/_config?shadow=true")
	default:
		paths = append(paths, own+"/dataplanes")
	}
	for _, path := range paths {
		if _, err := x.read(path, nil); err != nil {
			return err
		}
	}
	return nil
}

// write writes all files. It first removes those of an earlier export.
func (x *exporter) write() error {
	dir, err := filepath.Abs(x.o.Dir)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { // #nosec G301 -- a web server reads it
		return err
	}
	root, err := os.OpenRoot(dir) // no file leads out of it
	if err != nil {
		return err
	}
	defer root.Close()
	if err := removeEarlier(root, dir); err != nil {
		return err
	}
	names := make([]string, 0, len(x.files))
	for name := range x.files {
		names = append(names, name)
	}
	slices.Sort(names)
	// The list comes first: after a failure, the next export can replace this one.
	list := strings.Join(append(names, listFile), "\n") + "\n"
	if err := put(root, listFile, []byte(list)); err != nil {
		return err
	}
	x.out.Dir, x.out.Files, x.out.Bytes = x.o.Dir, len(names), 0
	for _, name := range names {
		if err := put(root, name, x.files[name]); err != nil {
			return fmt.Errorf("write %s: %w", filepath.Join(x.o.Dir, name), err)
		}
		x.out.Bytes += len(x.files[name])
	}
	return nil
}

func put(root *os.Root, name string, content []byte) error {
	if dir := filepath.Dir(name); dir != "." {
		if err := root.MkdirAll(dir, 0o755); err != nil { // #nosec G301 -- a web server reads it
			return err
		}
	}
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Close())
}

// removeEarlier removes the files of an earlier export. It refuses a directory with other files.
func removeEarlier(root *os.Root, dir string) error {
	list, err := root.ReadFile(listFile)
	if errors.Is(err, fs.ErrNotExist) {
		entries, err := os.ReadDir(dir)
		if err == nil && len(entries) > 0 {
			err = fmt.Errorf("the folder %s has files that no export has written, such as %q; give an empty folder", dir,
				entries[0].Name())
		}
		return err
	}
	if err != nil {
		return err
	}
	known := map[string]bool{}
	for name := range strings.Lines(string(list)) {
		known[strings.TrimSuffix(name, "\n")] = true
	}
	var dirs []string
	err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || name == ".":
			return err
		case d.IsDir():
			dirs = append(dirs, name)
			return nil
		case !known[name]:
			return fmt.Errorf("the folder %s has a file that no export has written, %q; give an empty folder", dir, name)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for name := range known {
		if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) && name != listFile {
			return err
		}
	}
	slices.Reverse(dirs)
	for _, name := range dirs {
		if err := root.Remove(name); err != nil {
			return err
		}
	}
	return nil
}
