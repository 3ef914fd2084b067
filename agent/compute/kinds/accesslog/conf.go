package accesslog

import (
	"cmp"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/rotation"
)

// Conf says where the entries about some traffic go, and which of them.
type Conf struct {
	// Backends are the places that every entry goes to. An empty list switches the log off for what
	// the policy selects; a missing one is a fault.
	Backends  *[]Backend `json:"backends,omitempty"`
	Filtering *Filtering `json:"filtering,omitempty"`
}

// Backend is one place that entries go to, in the form of Kuma (type File with file, and so on) or
// that of the design document (type file with conf).
type Backend struct {
	Type          string       `json:"type"`
	File          *File        `json:"file,omitempty"`
	TCP           *TCP         `json:"tcp,omitempty"`
	OpenTelemetry *OTel        `json:"openTelemetry,omitempty"`
	Name          string       `json:"name,omitempty"` // of what is referred to, or for the reader alone
	Conf          *BackendConf `json:"conf,omitempty"`
	Format        *Format      `json:"format,omitempty"` // of the form with conf
}

// File is a file that Envoy appends to, or with Rotation the agent.
type File struct {
	Path     string    `json:"path,omitempty"`
	Format   *Format   `json:"format,omitempty"`
	Rotation *Rotation `json:"rotation,omitempty"`
}

// Rotation asks the agent to write a file and to rotate it. A limit that is absent is that of the
// agent's config (accessLog.files); 0 switches it off.
type Rotation struct {
	MaxFileSize *int `json:"maxFileSize,omitempty"` // megabytes
	MaxFiles    *int `json:"maxFiles,omitempty"`    // rotated files, beside the one that is written
	MaxFileAge  *int `json:"maxFileAge,omitempty"`  // days
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

// BackendConf is the conf of the form of the design document: the path of a file, the address of a
// TCP collector, or what a reference means.
type BackendConf struct {
	Path     string    `json:"path,omitempty"`
	Rotation *Rotation `json:"rotation,omitempty"` // of a file
	Address  string    `json:"address,omitempty"`
	Kind     string    `json:"kind,omitempty"` // MeshAccessLogBackend or GlobalAccessLogBackend
	Name     string    `json:"name,omitempty"` // of the resource, or its spec.name
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
	name   string    // of the backend, "" for none
	path   string    // sinkFile
	rotate *Rotation // sinkFile: the agent writes it; nil: Envoy does
	addr   string    // sinkTCP
	prefix string    // sinkTCP: stands before every line in the FIFO, not for the collector
	format *Format   // sinkFile and sinkTCP; nil for the default of the protocol
	text   string    // instead of format, as Mesh.logging has it
	mesh   string    // name in Mesh.logging, "" for others
	otel   *OTel     // sinkOTel
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
	s := sink{kind: k, name: b.Name, path: conf.Path, rotate: conf.Rotation, addr: conf.Address, format: b.Format,
		otel: b.OpenTelemetry}
	if f := b.File; k == sinkFile && f != nil {
		s.path, s.rotate, s.format = f.Path, f.Rotation, cmp.Or(f.Format, s.format)
	}
	if t := b.TCP; k == sinkTCP && t != nil {
		s.addr, s.format = t.Address, cmp.Or(t.Format, s.format)
	}
	return s
}

// maxBackends bounds what one rule writes to.
const maxBackends = 64

// Validate checks the backends and the filtering.
func (c *Conf) Validate(v *resource.Validator) {
	switch {
	case c.Backends == nil:
		v.Field("backends").
			Faultf("the backends are missing: give at least one, or [] to switch the log off for what this selects")
	case toolkit.AtMost(v.Field("backends"), len(*c.Backends), maxBackends, "backends"):
		for i := range *c.Backends {
			(*c.Backends)[i].Check(v.Field("backends").Index(i), true)
		}
	}
	if c.Filtering != nil {
		c.Filtering.validate(v.Field("filtering"))
	}
}

// Validate checks the backend; it has a name, and is not itself a reference.
func (s *BackendSpec) Validate(v *resource.Validator) {
	if s.Name == "" {
		v.Field("name").Faultf("the name is missing: references may use it")
	}
	s.Check(v, false)
}

// Check checks the backend, which may be a reference.
func (b *Backend) Check(v *resource.Validator, references bool) {
	types := []string{"File", "Tcp", "OpenTelemetry", "file", "tcp"}
	if references {
		types = append(types, "reference")
	}
	if !v.Field("type").OneOf(b.Type, types...) {
		return
	}
	k, _ := b.kind()
	unset := func(set bool, field string) {
		if set {
			v.Field(field).Faultf("%s does not go with type %s: remove it", field, b.Type)
		}
	}
	unset(b.File != nil && k != sinkFile, "file")
	unset(b.TCP != nil && k != sinkTCP, "tcp")
	unset(b.OpenTelemetry != nil && k != sinkOTel, "openTelemetry")
	unset(b.Conf != nil && k == sinkOTel, "conf")
	unset(b.Format != nil && k == sinkOTel, "format")
	switch k {
	case reference:
		b.validateReference(v)
	case sinkOTel:
		if b.OpenTelemetry == nil {
			v.Field("openTelemetry").Faultf("openTelemetry is missing: type %s needs it", b.Type)
			return
		}
		b.OpenTelemetry.validate(v.Field("openTelemetry"))
	default:
		b.checkLines(v, k)
	}
}

// checkLines checks a backend for lines: one of two forms is used, the field of the type or conf.
func (b *Backend) checkLines(v *resource.Validator, k sinkKind) {
	typed, own, conf := b.File != nil, toolkit.Or(b.File, File{}), toolkit.Or(b.Conf, BackendConf{})
	field, part, check, inConf := "file", "path", (*resource.Validator).FilePath, conf.Path
	if k == sinkTCP {
		tcp := toolkit.Or(b.TCP, TCP{})
		typed, own = b.TCP != nil, File{Path: tcp.Address, Format: tcp.Format}
		field, part, check, inConf = "tcp", "address", (*resource.Validator).HostPort, conf.Address
	}
	switch {
	case typed && b.Conf != nil:
		v.Field("conf").Faultf("conf and %s are given: remove one of them", field)
	case !typed && b.Conf == nil && b.Type != strings.ToLower(b.Type):
		v.Field(field).Faultf("%s is missing: type %s needs it", field, b.Type)
	case !typed && b.Conf == nil:
		v.Field("conf").Faultf("conf is missing: type %s needs it", b.Type)
	}
	if typed {
		check(v.Field(field).Field(part), own.Path)
	}
	own.Rotation.check(v.Field(field).Field("rotation"))
	if own.Format != nil {
		own.Format.read(v.Field(field).Field("format"))
		if b.Format != nil {
			v.Field("format").Faultf("format is given here and in %s: remove one of them", field)
		}
	}
	if b.Conf != nil {
		check(v.Field("conf").Field(part), inConf)
		if k == sinkFile {
			conf.Rotation.check(v.Field("conf").Field("rotation"))
		}
		conf.only(v.Field("conf"), b.Type, part)
	}
	if b.Format != nil {
		b.Format.read(v.Field("format"))
	}
}

// only checks that a conf has nothing but the fields of its type.
func (c *BackendConf) only(v *resource.Validator, typ string, fields ...string) {
	for _, f := range []struct{ name, value string }{
		{"path", c.Path}, {"address", c.Address}, {"kind", c.Kind}, {"name", c.Name},
	} {
		if !slices.Contains(fields, f.name) && f.value != "" {
			v.Field(f.name).Faultf("%s does not go with type %s: remove it", f.name, typ)
		}
	}
	if c.Rotation != nil && !slices.Contains(fields, "path") {
		v.Field("rotation").Faultf("rotation does not go with type %s: remove it", typ)
	}
}

// check checks the limits, which have the bounds that those of the agent's config have.
func (r *Rotation) check(v *resource.Validator) {
	if r == nil {
		return
	}
	for _, f := range []struct {
		name  string
		value *int
		most  int
	}{{"maxFileSize", r.MaxFileSize, 1 << 20}, {"maxFiles", r.MaxFiles, 100_000}, {"maxFileAge", r.MaxFileAge, 36_500}} {
		switch {
		case f.value == nil:
		case *f.value < 0:
			v.Field(f.name).Faultf("%d is negative: set a value >= 0, where 0 switches the limit off", *f.value)
		case *f.value > f.most:
			v.Field(f.name).Faultf("%d is too large: at most %d is allowed", *f.value, f.most)
		}
	}
}

// limits are those of a file that the agent writes.
func (r *Rotation) limits() rotation.Limits {
	or := func(n *int) int {
		if n == nil {
			return rotation.Unset
		}
		return *n
	}
	return rotation.Limits{MaxFileSize: or(r.MaxFileSize), MaxFiles: or(r.MaxFiles), MaxFileAge: or(r.MaxFileAge)}
}

// validateReference checks what a reference says by itself; whether there is such a backend is for
// the mesh to say.
func (b *Backend) validateReference(v *resource.Validator) {
	if b.Format != nil {
		v.Field("format").Faultf("the format belongs to the backend that is referred to: give it there")
	}
	if b.Conf == nil {
		if b.Name == "" {
			v.Field("conf").Faultf("conf is missing: give the kind (%s or %s) and the name of the backend, "+
				"or the name of one of Mesh.logging as name", kindBackend, kindGlobalBackend)
		}
		return
	}
	v = v.Field("conf")
	v.Field("kind").OneOf(b.Conf.Kind, kindBackend, kindGlobalBackend)
	switch {
	case b.Conf.Name == "":
		v.Field("name").Faultf("the name is missing: give that of the %s, or its spec.name", kindBackend)
	case b.Name != "" && b.Name != b.Conf.Name:
		v.Field("name").Faultf("%q and the name %q of the backend do not agree: remove one of them",
			toolkit.Clip(b.Conf.Name), toolkit.Clip(b.Name))
	}
	b.Conf.only(v, b.Type, "kind", "name")
}
