package accesslog

import (
	"cmp"

	"github.com/nearside-mesh/nearside/agent/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// Conf says where the entries about some traffic go, and which of them.
type Conf struct {
	// Backends are the places that every entry goes to. An empty list switches the log off for what the policy selects;
	// a missing one is a fault.
	Backends  *[]Backend `json:"backends,omitempty"`
	Filtering *Filtering `json:"filtering,omitempty"`
}

// Backend is one place that entries go to, in the form of Kuma (type File with file, and so on) or that of the design
// document (type file with conf).
type Backend struct {
	Type          string       `json:"type"`
	File          *File        `json:"file,omitempty"`
	TCP           *TCP         `json:"tcp,omitempty"`
	OpenTelemetry *OTel        `json:"openTelemetry,omitempty"`
	Name          string       `json:"name,omitempty"` // of what is referred to, or for the reader alone
	Conf          *BackendConf `json:"conf,omitempty"`
	Format        *Format      `json:"format,omitempty"` // of the form with conf
}

// File is a file that Envoy appends to.
type File struct {
	Path   string  `json:"path,omitempty"`
	Format *Format `json:"format,omitempty"`
}

// TCP is a collector that takes lines.
type TCP struct {
	Address string  `json:"address,omitempty"` // host:port
	Format  *Format `json:"format,omitempty"`
}

// OTel is an OpenTelemetry collector.
type OTel struct {
	Endpoint   string        `json:"endpoint,omitempty"` // host or host:port; without a port 4317 is meant
	Attributes []Attribute   `json:"attributes,omitempty"`
	Body       *resource.Raw `json:"body,omitempty"` // a format string, or an OTLP AnyValue with format strings
}

// Attribute is one attribute of a log record; the value is a format string.
type Attribute struct {
	Key   string `json:"key,omitempty"`
	Value string `json:"value,omitempty"`
}

// BackendConf is the conf of the form of the design document: the path of a file, the address of a TCP collector, or
// what a reference means.
type BackendConf struct {
	Path    string `json:"path,omitempty"`
	Address string `json:"address,omitempty"`
	Kind    string `json:"kind,omitempty"` // MeshAccessLogBackend or GlobalAccessLogBackend
	Name    string `json:"name,omitempty"` // of the resource, or its spec.name
}

// BackendSpec is the spec of MeshAccessLogBackend and GlobalAccessLogBackend.
type BackendSpec struct{ Backend }

func newBackendSpec() resource.Spec { return new(BackendSpec) }

// sinkKind is a way to write entries.
type sinkKind int

const (
	sinkFile sinkKind = iota
	sinkTCP
	sinkOTel
	reference // to a backend that stands elsewhere
)

// sink is a backend in one form.
type sink struct {
	kind   sinkKind
	path   string  // sinkFile
	addr   string  // sinkTCP
	prefix string  // sinkTCP: stands before every line in the FIFO, not for the collector
	format *Format // sinkFile and sinkTCP; nil for the default of the protocol
	text   string  // instead of format, as Mesh.logging has it
	mesh   string  // name in Mesh.logging, "" for others
	otel   *OTel   // sinkOTel
}

// kind reads the type; false when there is no such type.
func (b *Backend) kind() (sinkKind, bool) {
	switch b.Type {
	case "File", "file":
		return sinkFile, true
	case "Tcp", "tcp":
		return sinkTCP, true
	case "OpenTelemetry":
		return sinkOTel, true
	case "reference":
		return reference, true
	}
	return 0, false
}

// sink returns what a valid backend that is no reference writes to.
func (b *Backend) sink() sink {
	k, _ := b.kind()
	conf := toolkit.Or(b.Conf, BackendConf{})
	s := sink{kind: k, path: conf.Path, addr: conf.Address, format: b.Format, otel: b.OpenTelemetry}
	if f := b.File; k == sinkFile && f != nil {
		s.path, s.format = f.Path, cmp.Or(f.Format, s.format)
	}
	if t := b.TCP; k == sinkTCP && t != nil {
		s.addr, s.format = t.Address, cmp.Or(t.Format, s.format)
	}
	return s
}
