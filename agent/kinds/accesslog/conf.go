package accesslog

import (
	"bytes"
	"encoding/json"

	"github.com/nearside-mesh/nearside/agent/resource"
)

// Conf says where the entries about some traffic go, and which of them.
type Conf struct {
	// Backends are the places that every entry goes to. An empty list switches the log off for what the policy selects;
	// a missing one is a fault.
	Backends  *Backends  `json:"backends,omitempty"`
	Filtering *Filtering `json:"filtering,omitempty"`
}

// Backends is a list that is written when it is empty, too.
type Backends []Backend

// MarshalJSON writes the list, an empty one as [].
func (b Backends) MarshalJSON() ([]byte, error) {
	if len(b) == 0 {
		return []byte("[]"), nil
	}
	type plain []Backend // without this method
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	err := enc.Encode(plain(b))
	return bytes.TrimRight(buf.Bytes(), "\n"), err
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
	s := sink{kind: k, format: b.Format, otel: b.OpenTelemetry}
	if b.Conf != nil {
		s.path, s.addr = b.Conf.Path, b.Conf.Address
	}
	if k == sinkFile && b.File != nil {
		s.path = b.File.Path
		if b.File.Format != nil {
			s.format = b.File.Format
		}
	}
	if k == sinkTCP && b.TCP != nil {
		s.addr = b.TCP.Address
		if b.TCP.Format != nil {
			s.format = b.TCP.Format
		}
	}
	return s
}

// LegacyConf is the conf of a TrafficLog.
type LegacyConf struct {
	Backend string `json:"backend,omitempty"` // of Mesh.logging; "" for its default
}

// Validate accepts any name: which backends there are is for the Mesh to say.
func (c *LegacyConf) Validate(*resource.Validator) {}
