package accesslog

import (
	"cmp"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Conf is the conf of a MeshAccessLog.
type Conf struct {
	// Backends are the destinations of every entry. It is required; an empty list disables the log
	// for the selected traffic.
	Backends  *[]Backend `json:"backends,omitempty"`
	Filtering *Filtering `json:"filtering,omitempty"`
}

// Fits reports whether a field applies to a protocol.
func (*Conf) Fits(path string, p mesh.Protocol) bool {
	return p.HTTP() || !strings.HasPrefix(path, "filtering.headers") && path != "filtering.grpcStatus"
}

// Backend is a destination of entries, in Kuma's form (type File with file, and so on) or in the
// form of the design document (type file with conf).
type Backend struct {
	Type          string       `json:"type"`
	File          *File        `json:"file,omitempty"`
	TCP           *TCP         `json:"tcp,omitempty"`
	OpenTelemetry *OTel        `json:"openTelemetry,omitempty"`
	Name          string       `json:"name,omitempty"` // name of the referenced backend, or a description
	Conf          *BackendConf `json:"conf,omitempty"`
	Format        *Format      `json:"format,omitempty"` // format of a backend with conf
}

// File is a file to which the agent appends, or Envoy; see [Rotation].
type File struct {
	Path     string    `json:"path,omitempty"`
	Format   *Format   `json:"format,omitempty"`
	Rotation *Rotation `json:"rotation,omitempty"`
}

// Rotation has limits with which the agent writes and rotates a file, or is the text none: then
// Envoy writes the file, and another program may rotate it. Without a Rotation, accessLog.rotation
// of the agent's config decides.
type Rotation struct {
	None bool `json:"-"`
	RotationLimits
}

// RotationLimits are the limits of a file that the agent rotates. Unset limits are those of the
// agent's config (accessLog.files); 0 disables a limit.
type RotationLimits struct {
	MaxFileSize *int `json:"maxFileSize,omitempty"` // megabytes
	MaxFiles    *int `json:"maxFiles,omitempty"`    // rotated files, excluding the current one
	MaxFileAge  *int `json:"maxFileAge,omitempty"`  // days
}

// TCP is a collector that receives lines.
type TCP struct {
	Address string  `json:"address,omitempty"` // host:port
	Format  *Format `json:"format,omitempty"`
}

// OTel is an OpenTelemetry collector.
type OTel struct {
	Endpoint   string           `json:"endpoint,omitempty"`   // host or host:port. Default port 4317
	BackendRef *toolkit.OTelRef `json:"backendRef,omitempty"` // instead of Endpoint
	Attributes []Attribute      `json:"attributes,omitempty"`
	Body       *resource.Raw    `json:"body,omitempty"` // a format string, or an OTLP AnyValue with format strings
}

// Attribute is one attribute of a log record; the value is a format string.
type Attribute struct {
	Key   string `json:"key,omitempty"`
	Value string `json:"value,omitempty"`
}

// BackendConf is the conf in the form of the design document: the path of a file, the address of a
// TCP collector, or a reference.
type BackendConf struct {
	Path     string    `json:"path,omitempty"`
	Rotation *Rotation `json:"rotation,omitempty"` // rotation of a file
	Address  string    `json:"address,omitempty"`
	Kind     string    `json:"kind,omitempty"` // MeshAccessLogBackend or GlobalAccessLogBackend
	Name     string    `json:"name,omitempty"` // name of the resource, or its spec.name
}

// BackendSpec is the spec of MeshAccessLogBackend and GlobalAccessLogBackend.
type BackendSpec struct{ Backend }

func newBackendSpec() resource.Spec { return new(BackendSpec) }

// sinkKind is the kind of a sink.
type sinkKind int

const (
	sinkFile sinkKind = iota
	sinkTCP
	sinkOTel
	reference // reference to a backend resource
)

// sink is a backend in normalized form.
type sink struct {
	kind   sinkKind
	name   string       // name of the backend, or ""
	path   string       // sinkFile
	rotate *Rotation    // sinkFile; nil: the node decides
	addr   string       // sinkTCP
	prefix string       // sinkTCP: prefix of lines in the FIFO, removed for the collector
	format *Format      // sinkFile and sinkTCP; nil for the default of the protocol
	text   string       // used instead of format for Mesh.logging
	mesh   string       // name in Mesh.logging, or ""
	otel   *OTel        // sinkOTel
	otlp   toolkit.OTLP // sinkOTel: the collector
}

// kind parses the type. It returns false if the type is unknown.
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

// sink returns the sink of a valid backend that is not a reference.
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

// maxBackends limits the backends of one rule.
const maxBackends = 64

// Validate validates the backends and the filtering.
func (c *Conf) Validate(v *resource.Validator) {
	switch {
	case c.Backends == nil:
		v.Field("backends").
			Faultf("the backends are missing: give at least one, or [] to disable the log for the selected traffic")
	case toolkit.AtMost(v.Field("backends"), len(*c.Backends), maxBackends, "backends"):
		for i := range *c.Backends {
			(*c.Backends)[i].Check(v.Field("backends").Index(i), true)
		}
	}
	if c.Filtering != nil {
		c.Filtering.validate(v.Field("filtering"))
	}
}

// Validate validates the backend, which must have a name and must not be a reference.
func (s *BackendSpec) Validate(v *resource.Validator) {
	if s.Name == "" {
		v.Field("name").Faultf("the name is missing: references use it")
	}
	s.Check(v, false)
}

// Check validates the backend. references permits references.
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
			v.Field(field).Faultf("%s is not allowed with type %s: remove it", field, b.Type)
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
			v.Field("openTelemetry").Faultf("openTelemetry is required for type %s", b.Type)
			return
		}
		b.OpenTelemetry.validate(v.Field("openTelemetry"))
	default:
		b.checkLines(v, k)
	}
}

// checkLines validates a backend for lines, which must have one of two forms: the field of the
// type, or conf.
func (b *Backend) checkLines(v *resource.Validator, k sinkKind) {
	typed, file, conf := b.File != nil, toolkit.Or(b.File, File{}), toolkit.Or(b.Conf, BackendConf{})
	field, target, check, inConf := "file", "path", (*resource.Validator).FilePath, conf.Path
	if k == sinkTCP {
		tcp := toolkit.Or(b.TCP, TCP{})
		typed, file = b.TCP != nil, File{Path: tcp.Address, Format: tcp.Format}
		field, target, check, inConf = "tcp", "address", (*resource.Validator).HostPort, conf.Address
	}
	switch {
	case typed && b.Conf != nil:
		v.Field("conf").Faultf("conf and %s are both given: remove one of them", field)
	case !typed && b.Conf == nil && b.Type != strings.ToLower(b.Type):
		v.Field(field).Faultf("%s is required for type %s", field, b.Type)
	case !typed && b.Conf == nil:
		v.Field("conf").Faultf("conf is required for type %s", b.Type)
	}
	if typed {
		check(v.Field(field).Field(target), file.Path)
	}
	file.Rotation.check(v.Field(field).Field("rotation"))
	if file.Format != nil {
		file.Format.read(v.Field(field).Field("format"))
		if b.Format != nil {
			v.Field("format").Faultf("format is also given in %s: remove one of them", field)
		}
	}
	if b.Conf != nil {
		check(v.Field("conf").Field(target), inConf)
		if k == sinkFile {
			conf.Rotation.check(v.Field("conf").Field("rotation"))
		}
		conf.only(v.Field("conf"), b.Type, target)
	}
	if b.Format != nil {
		b.Format.read(v.Field("format"))
	}
}

// only validates that a conf has only the fields of its type.
func (c *BackendConf) only(v *resource.Validator, typ string, fields ...string) {
	for _, f := range []struct{ name, value string }{
		{"path", c.Path}, {"address", c.Address}, {"kind", c.Kind}, {"name", c.Name},
	} {
		if !slices.Contains(fields, f.name) && f.value != "" {
			v.Field(f.name).Faultf("%s is not allowed with type %s: remove it", f.name, typ)
		}
	}
	if c.Rotation != nil && !slices.Contains(fields, "path") {
		v.Field("rotation").Faultf("rotation is not allowed with type %s: remove it", typ)
	}
}

// check validates the limits, with the same ranges as in the agent's config.
func (r *Rotation) check(v *resource.Validator) {
	if r == nil || r.None {
		return
	}
	for _, f := range []struct {
		name  string
		value *int
		limit int
	}{{"maxFileSize", r.MaxFileSize, 1 << 20}, {"maxFiles", r.MaxFiles, 100_000}, {"maxFileAge", r.MaxFileAge, 36_500}} {
		switch {
		case f.value == nil:
		case *f.value < 0:
			v.Field(f.name).Faultf("%d is negative: give at least 0, which disables the limit", *f.value)
		case *f.value > f.limit:
			v.Field(f.name).Faultf("%d is too large: the maximum is %d", *f.value, f.limit)
		}
	}
}

// validateReference validates a reference without resolving it; the backend depends on the mesh.
func (b *Backend) validateReference(v *resource.Validator) {
	if b.Format != nil {
		v.Field("format").Faultf("a reference has no format: set it in the referenced backend")
	}
	if b.Conf == nil {
		if b.Name == "" {
			v.Field("conf").Faultf("conf is missing: give the kind (%s or %s) and name of the backend, "+
				"or the name of a backend in Mesh.logging as name", kindBackend, kindGlobalBackend)
		}
		return
	}
	v = v.Field("conf")
	v.Field("kind").OneOf(b.Conf.Kind, kindBackend, kindGlobalBackend)
	switch {
	case b.Conf.Name == "":
		v.Field("name").Faultf("the name is missing: give the name of the %s, or its spec.name", kindBackend)
	case b.Name != "" && b.Name != b.Conf.Name:
		v.Field("name").Faultf("%q differs from the name %q of the backend: remove one of them",
			toolkit.Clip(b.Conf.Name), toolkit.Clip(b.Name))
	}
	b.Conf.only(v, b.Type, "kind", "name")
}
