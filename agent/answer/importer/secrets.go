package importer

import (
	"encoding/base64"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/strict"
)

type secretKey struct{ mesh, name string }

// secretDocument is a Secret of the export.
type secretDocument struct {
	doc   *document
	data  []byte
	fault string // why it has no data
	users []string
}

// secretName matches the names that become file names.
var secretName = regexp.MustCompile(`^[a-z0-9]([a-z0-9._-]*[a-z0-9])?$`)

// collectSecrets reads the Secrets of the export.
func (x *reader) collectSecrets() {
	for i := range x.docs {
		d := &x.docs[i]
		if d.root == nil || d.Type != kindSecret && d.Type != kindGlobalSecret {
			continue
		}
		encoded := text(d.root, "data")
		if d.kubernetes() {
			encoded = text(d.root, "data", "value")
		}
		s := &secretDocument{doc: d}
		var err error
		switch s.data, err = base64.StdEncoding.DecodeString(encoded); {
		case err != nil || len(s.data) == 0:
			s.fault = "its data is not base64"
		case !secretName.MatchString(d.Name) || !secretName.MatchString(d.Mesh) && d.Type == kindSecret:
			s.fault = "its name cannot be a file name"
		}
		if d.Type == kindSecret {
			x.secrets[secretKey{d.Mesh, d.Name}] = s
		}
	}
}

// useSecrets replaces the references of a document to Secrets by files. A builtin authority whose
// certificate and key are in the export becomes a provided one, so that proxies of agents and of
// the control plane trust each other.
func (x *reader) useSecrets(d *document) {
	mesh := d.Mesh
	if d.Type == kindMesh {
		mesh = d.Name
	}
	d.root = x.replaced(d, mesh, d.root, "")
	if d.Type == kindMesh && d.Action == "" {
		d.root = x.authorities(d, d.root, "")
	}
}

// replaced returns a node with data sources in place of references to Secrets.
func (x *reader) replaced(d *document, mesh string, n *strict.Node, path string) *strict.Node {
	if name := text(n, "secret"); name != "" && len(n.Pairs) == 1 {
		at := x.file(d, mesh, name, path)
		if at == "" {
			return n
		}
		d.Reasons = append(d.Reasons, fmt.Sprintf("%s: the Secret %s is in a file", path, strict.Quote(name)))
		return fileSource(at, n.Line)
	}
	return n.Mapped(func(key string, i int, v *strict.Node) *strict.Node {
		return x.replaced(d, mesh, v, below(path, key, i))
	})
}

// below returns the path of a member or item.
func below(path, key string, i int) string {
	switch {
	case key == "":
		return fmt.Sprintf("%s[%d]", path, i)
	case path == "":
		return key
	}
	return path + "." + key
}

func fileSource(path string, line int) *strict.Node {
	return mapping(line, "file", &strict.Node{Kind: strict.String, Line: line, Text: path})
}

func mapping(line int, key string, v *strict.Node, rest ...strict.Pair) *strict.Node {
	return &strict.Node{Kind: strict.Mapping, Line: line,
		Pairs: append([]strict.Pair{{Key: key, Line: line, Value: v}}, rest...)}
}

// file returns the path of a Secret's file. It refuses the document that needs it if the Secret is
// unusable.
func (x *reader) file(d *document, mesh, name, path string) string {
	s := x.secrets[secretKey{mesh, name}]
	switch {
	case s == nil:
		d.end(Refused, "%s: the Secret %s is not in the export; export with --include-admin", path, strict.Quote(name))
		return ""
	case s.fault != "":
		d.end(Refused, "%s: the Secret %s cannot be used: %s", path, strict.Quote(name), s.fault)
		return ""
	}
	file := mesh + "/" + name
	s.users = append(s.users, d.ID())
	x.files["secrets/"+file] = &File{Name: "secrets/" + file, Data: s.data, Private: true}
	return x.secretsAt + "/" + file
}

// authorities rewrites the builtin authorities below mtls.backends.
func (x *reader) authorities(d *document, n *strict.Node, path string) *strict.Node {
	switch path {
	case "", "spec", "mtls", "spec.mtls", "mtls.backends", "spec.mtls.backends":
		return n.Mapped(func(key string, i int, v *strict.Node) *strict.Node {
			return x.authorities(d, v, below(path, key, i))
		})
	}
	if !strings.HasPrefix(strings.TrimPrefix(path, "spec."), "mtls.backends[") || text(n, "type") != "builtin" {
		return n
	}
	backend := text(n, "name")
	cert, key := d.Name+".ca-builtin-cert-"+backend, d.Name+".ca-builtin-key-"+backend
	if x.secrets[secretKey{d.Name, cert}] == nil || x.secrets[secretKey{d.Name, key}] == nil {
		x.warnf("%s: %s: the certificate and key of the builtin authority are not in the export, so agents create "+
			"another authority, and proxies of the control plane do not trust it; export with --include-admin to keep it",
			d.ID(), path)
		return n
	}
	certAt, keyAt := x.file(d, d.Name, cert, path), x.file(d, d.Name, key, path)
	if certAt == "" || keyAt == "" {
		return n
	}
	out := *n
	out.Pairs = slices.DeleteFunc(slices.Clone(n.Pairs), func(p strict.Pair) bool {
		return p.Key == "conf" || p.Key == "type"
	})
	out.Pairs = append(out.Pairs,
		strict.Pair{Key: "type", Line: n.Line, Value: &strict.Node{Kind: strict.String, Line: n.Line, Text: "provided"}},
		strict.Pair{Key: "conf", Line: n.Line, Value: mapping(n.Line, "cert", fileSource(certAt, n.Line),
			strict.Pair{Key: "key", Line: n.Line, Value: fileSource(keyAt, n.Line)})})
	d.Reasons = append(d.Reasons, path+": the certificate and key of the builtin authority are in files, so its type "+
		"is provided")
	return &out
}

// finishSecrets decides about the Secrets.
func (x *reader) finishSecrets() {
	for i := range x.docs {
		d := &x.docs[i]
		if d.Action != kindSecret {
			continue
		}
		s := x.secrets[secretKey{d.Mesh, d.Name}]
		switch {
		case d.Type == kindSecret && s != nil && s.doc == d && len(s.users) > 0:
			d.end(Changed, "a file, which %s uses", strings.Join(slices.Compact(s.users), ", "))
		case strings.Contains(d.Name, "token-signing-key"), strings.HasPrefix(d.Name, "admin-user-token"),
			strings.HasPrefix(d.Name, "zone-token"):
			d.end(LeftOut, "it is for tokens of the control plane; nearside token create creates tokens")
		default:
			d.end(LeftOut, "no resource of the export uses it")
		}
	}
}
