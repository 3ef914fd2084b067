// Package importer turns an export of a Kuma control plane into resources for nearside: the
// documents that "kumactl export" writes in the universal and the Kubernetes format.
//
// Every document of the export is in the report, with the action and its reasons. A document is
// never changed or left out without a reason. A document whose absence would change traffic is
// refused, and the caller decides. The package reads and writes no files.
package importer

import (
	"bytes"
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/strict"
	"github.com/nearside-mesh/nearside/agent/base/workers"
	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/suffix"
)

// Actions on a document.
const (
	Taken   = "taken"    // unchanged
	Changed = "changed"  // taken in another form, with the same meaning
	LeftOut = "left out" // agents do not need it
	Refused = "refused"  // cannot be taken, and traffic would differ without it
)

// Text is one file of an export.
type Text struct {
	Name string // for the report
	Data []byte
}

// Report tells what became of an export.
type Report struct {
	Version   string         `json:"version,omitempty"` // of the control plane, if the export names it
	Counts    map[string]int `json:"counts"`            // documents by action
	Documents []Document     `json:"documents"`         // in the order of the export
	Warnings  []string       `json:"warnings"`
	// Unusable is the reason why the export as a whole cannot be taken, or "".
	Unusable string `json:"unusable,omitempty"`

	Files []File `json:"-"` // sorted by name
}

// Document is the report about one document.
type Document struct {
	File    string   `json:"file"`
	Index   int      `json:"document"` // 1-based
	Line    int      `json:"line,omitempty"`
	Type    string   `json:"type,omitempty"`
	Mesh    string   `json:"mesh,omitempty"`
	Name    string   `json:"name,omitempty"`
	Action  string   `json:"action"`
	Reasons []string `json:"reasons"`
}

// ID returns the resource as Kind/mesh/name, or the position of a document that names none.
func (d *Document) ID() string {
	if d.Type == "" {
		return fmt.Sprintf("document %d", d.Index)
	}
	return resource.Key{Kind: d.Type, Mesh: d.Mesh, Name: d.Name}.String()
}

// File is a file of the resulting folder.
type File struct {
	Name      string               // relative, with slashes
	Resources []*resource.Resource // of a resource file
	Data      []byte               // of another file: the content of a Secret
	Private   bool                 // contains a secret
}

// document is a document of the export with its state.
type document struct {
	Document
	root   *strict.Node
	mark   string // creationTime
	result *resource.Resource
}

func (d *document) end(action, format string, args ...any) {
	d.Action = action
	d.Reasons = append(d.Reasons, fmt.Sprintf(format, args...))
}

// header matches the comment at the start of an export.
var header = regexp.MustCompile(`(?m)^# Product: [^,\n]*, Version: ([^,\s]+)`)

// Read reads an export. secrets is the absolute path of the folder that will contain the files of
// its Secrets.
func Read(texts []Text, secrets string) *Report {
	x := &reader{registry: kinds.Registry(), out: &Report{Counts: map[string]int{}, Warnings: []string{}},
		secretsAt: secrets, secrets: map[secretKey]*secretDocument{}, files: map[string]*File{}}
	for _, t := range texts {
		x.parse(t)
	}
	x.version()
	x.collectSecrets()
	x.duplicates()
	x.declarations()
	for i := range x.docs {
		x.classify(&x.docs[i])
	}
	x.decode()
	x.finishSecrets()
	x.finish()
	return x.out
}

type reader struct {
	registry  *resource.Registry
	out       *Report
	docs      []document
	secretsAt string
	secrets   map[secretKey]*secretDocument
	files     map[string]*File
}

// parse adds the documents of a text.
func (x *reader) parse(t Text) {
	if m := header.FindSubmatch(t.Data); m != nil {
		x.out.Version = cmp.Or(x.out.Version, string(m[1]))
	}
	first := len(x.docs)
	strict.Stream(t.Data, strict.Limits{FileBytes: maxExport}.WithDefaults(), func(p strict.Document) bool {
		d := document{Document: Document{File: t.Name, Index: p.Index, Reasons: []string{}}, root: p.Root}
		switch {
		case p.Fault != nil:
			d.Line = p.Fault.Line
			d.end(Refused, "%s", p.Fault.Reason)
		case p.Root == nil || p.Root.Kind == strict.Null:
			return true
		default:
			d.Line = p.Root.Line
			d.identify(x.registry)
		}
		x.docs = append(x.docs, d)
		return true
	})
	if n := len(x.docs); n > first {
		d := &x.docs[n-1]
		cut := header.Match(t.Data) && !bytes.HasSuffix(t.Data, []byte("\n"))
		if cut || d.Action == Refused {
			d.end(Refused, "it is the last document, so the export may be truncated; export again")
		} else if d.Type == kindMesh && header.Match(t.Data) {
			x.warnf("%s ends with %s: the export may be truncated, and the mesh may lack settings; "+
				"check that kumactl export succeeded", t.Name, d.ID())
		}
	}
}

// maxExport is the maximum size of an export in bytes.
const maxExport = 256 << 20

// text returns a string field, or "".
func text(n *strict.Node, path ...string) string {
	for _, p := range path {
		n = n.Get(p)
	}
	if n == nil || n.Kind != strict.String {
		return ""
	}
	return n.Text
}

// identify reads the key of a document in either format.
func (d *document) identify(reg *resource.Registry) {
	r := d.root
	d.Type, d.Mesh, d.Name = text(r, "type"), text(r, "mesh"), text(r, "name")
	d.mark = text(r, "creationTime")
	if d.kubernetes() {
		d.Type, d.Name = text(r, "kind"), text(r, "metadata", "name")
		d.mark = text(r, "metadata", "creationTimestamp")
		d.Mesh = cmp.Or(d.Mesh, text(r, "metadata", "labels", resource.LabelMesh))
		if d.Type == kindSecret && text(r, "type") == "system.kuma.io/global-secret" {
			d.Type = kindGlobalSecret
		} else if ns := text(r, "metadata", "namespace"); ns != "" && d.Type != kindSecret {
			d.Name += "." + ns
		}
	}
	kind, known := reg.Lookup(d.Type)
	switch {
	case d.Type == kindGlobalSecret, known && kind.Kind == d.Type && kind.Scope == resource.ScopeGlobal:
		d.Mesh = ""
	case d.Mesh == "" && (d.Type == kindSecret || known && kind.Kind == d.Type):
		d.Mesh = resource.DefaultMesh
	}
}

func (d *document) kubernetes() bool {
	return d.root.Get("apiVersion") != nil && d.root.Get("kind") != nil
}

func (d *document) key() resource.Key { return resource.Key{Kind: d.Type, Mesh: d.Mesh, Name: d.Name} }

// version compares the version of the control plane with the newest known one.
func (x *reader) version() {
	number := func(s string) (major, minor int, ok bool) {
		parts := strings.SplitN(strings.TrimPrefix(s, "v"), ".", 3)
		if len(parts) < 2 {
			return 0, 0, false
		}
		major, err1 := strconv.Atoi(parts[0])
		minor, err2 := strconv.Atoi(parts[1])
		return major, minor, err1 == nil && err2 == nil
	}
	major, minor, ok := number(x.out.Version)
	knownMajor, knownMinor, _ := number(resource.SchemaVersion)
	switch {
	case !ok || major < knownMajor || major == knownMajor && minor <= knownMinor:
	case major == knownMajor:
		x.warnf("the export is from Kuma %s, and the newest known version is %s: fields and kinds of later versions are "+
			"refused", x.out.Version, resource.SchemaVersion)
	default:
		x.out.Unusable = fmt.Sprintf("the export is from Kuma %s, and the newest known version is %s: since Kuma %d.0, "+
			"other kinds define mTLS, services, and zone proxies, so the meshes would mean something else; export from a "+
			"control plane of Kuma %s or earlier", x.out.Version, resource.SchemaVersion, knownMajor+1, resource.SchemaVersion)
	}
}

func (x *reader) warnf(format string, args ...any) {
	x.out.Warnings = append(x.out.Warnings, fmt.Sprintf(format, args...))
}

// decode decodes the documents without an action, and decides about them.
func (x *reader) decode() {
	var stream bytes.Buffer
	var list []*document
	for i := range x.docs {
		if d := &x.docs[i]; d.Action == "" {
			list = append(list, d)
			stream.WriteString("---\n")
			stream.Write(d.root.JSON())
			stream.WriteByte('\n')
		}
	}
	lim := strict.Limits{FileBytes: 2 * maxExport}
	rs, faults := x.registry.On(workers.All(), workers.Each).DecodeLimits("", stream.Bytes(), lim)
	for _, f := range faults {
		if f.Document < 1 || f.Document > len(list) {
			x.warnf("%s", f.Reason)
			continue
		}
		d := list[f.Document-1]
		action := Refused
		if reason, harmless := unneeded[d.Type]; harmless {
			action = LeftOut
			f.Reason, f.Field = cmp.Or(reason, f.Reason), ""
		}
		if f.Field != "" {
			d.Line = cmp.Or(d.root.LineOf(f.Field), d.Line)
			f.Reason = f.Field + ": " + f.Reason
		}
		d.end(action, "%s", f.Reason)
	}
	for _, d := range list {
		if d.Action != "" {
			continue
		}
		if len(rs) == 0 { // the limits of the decoder, in a warning
			d.end(Refused, "it is beyond the limits of one export; split the export")
			continue
		}
		d.result, rs = rs[0], rs[1:]
		if reason := suffix.Refusal(d.result); reason != "" {
			d.end(Refused, "%s: %s", suffix.Field, reason)
		} else if d.Action = Taken; len(d.Reasons) > 0 {
			d.Action = Changed
		}
	}
}

// finish counts the documents and collects the files.
func (x *reader) finish() {
	meshes, missing := map[string]bool{}, map[string]int{}
	for i := range x.docs {
		if d := &x.docs[i]; d.Type == kindMesh && d.result != nil {
			meshes[d.Name] = true
		}
	}
	for i := range x.docs {
		d := &x.docs[i]
		x.out.Counts[d.Action]++
		x.out.Documents = append(x.out.Documents, d.Document)
		if d.Action != Taken && d.Action != Changed || d.result == nil {
			continue
		}
		desc, _ := x.registry.Lookup(d.result.Kind)
		name := desc.Plural + ".yaml"
		if d.result.Mesh != "" {
			name = d.result.Mesh + "." + name
			if !meshes[d.result.Mesh] {
				missing[d.result.Mesh]++
			}
		}
		f := x.files[name]
		if f == nil {
			f = &File{Name: name}
			x.files[name] = f
		}
		f.Resources = append(f.Resources, d.result)
		f.Private = f.Private || d.result.HasSecrets
	}
	for _, mesh := range sortedKeys(missing) {
		x.warnf("Mesh/%s is not taken from the export: %d resources have no effect without it", mesh, missing[mesh])
	}
	for _, name := range sortedKeys(x.files) {
		x.out.Files = append(x.out.Files, *x.files[name])
	}
}

func sortedKeys[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
