package accesslog

import (
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// maxBackends bounds what one rule writes to.
const maxBackends = 64

// Validate checks the backends and the filtering.
func (c *Conf) Validate(v *resource.Validator) {
	switch {
	case c.Backends == nil:
		v.Field("backends").Faultf("the backends are missing: give at least one, or [] to switch the log off for what this selects")
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
	if own.Format != nil {
		own.Format.validate(v.Field(field).Field("format"))
		if b.Format != nil {
			v.Field("format").Faultf("format is given here and in %s: remove one of them", field)
		}
	}
	if b.Conf != nil {
		check(v.Field("conf").Field(part), inConf)
		conf.only(v.Field("conf"), b.Type, part)
	}
	if b.Format != nil {
		b.Format.validate(v.Field("format"))
	}
}

// only checks that a conf has nothing but the fields of its type.
func (c *BackendConf) only(v *resource.Validator, typ string, fields ...string) {
	for _, f := range []struct{ name, value string }{{"path", c.Path}, {"address", c.Address}, {"kind", c.Kind}, {"name", c.Name}} {
		if !slices.Contains(fields, f.name) && f.value != "" {
			v.Field(f.name).Faultf("%s does not go with type %s: remove it", f.name, typ)
		}
	}
}

// validateReference checks what a reference says by itself; whether there is such a backend is for the mesh to say.
func (b *Backend) validateReference(v *resource.Validator) {
	if b.Format != nil {
		v.Field("format").Faultf("the format belongs to the backend that is referred to: give it there")
	}
	if b.Conf == nil {
		if b.Name == "" {
			v.Field("conf").Faultf("conf is missing: give the kind (%s or %s) and the name of the backend, or the name of one of Mesh.logging as name", kindBackend, kindGlobalBackend)
		}
		return
	}
	v = v.Field("conf")
	v.Field("kind").OneOf(b.Conf.Kind, kindBackend, kindGlobalBackend)
	switch {
	case b.Conf.Name == "":
		v.Field("name").Faultf("the name is missing: give that of the %s, or its spec.name", kindBackend)
	case b.Name != "" && b.Name != b.Conf.Name:
		v.Field("name").Faultf("%q and the name %q of the backend do not agree: remove one of them", toolkit.Clip(b.Conf.Name), toolkit.Clip(b.Name))
	}
	b.Conf.only(v, b.Type, "kind", "name")
}
