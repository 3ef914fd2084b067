package xds

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
)

const redacted = "[redacted]"

// redact replaces private keys and the like in a message, and in what is packed inside it.
func redact(m protoreflect.Message) {
	switch x := m.Interface().(type) {
	case *anypb.Any:
		inner, err := x.UnmarshalNew()
		if err != nil {
			return // shown by its type and bytes, as it came
		}
		redact(inner.ProtoReflect())
		if body, err := (proto.MarshalOptions{Deterministic: true}).Marshal(inner); err == nil {
			x.Value = body
		}
		return
	case *tlsv3.TlsCertificate:
		hide(x.PrivateKey)
		hide(x.Password)
		hide(x.Pkcs12)
	case *tlsv3.TlsSessionTicketKeys:
		for _, k := range x.Keys {
			hide(k)
		}
		return
	case *tlsv3.GenericSecret:
		hide(x.Secret)
		return
	}
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if fd.Kind() != protoreflect.MessageKind && !fd.IsMap() {
			return true
		}
		switch {
		case fd.IsList():
			for i := range v.List().Len() {
				redact(v.List().Get(i).Message())
			}
		case fd.IsMap():
			if fd.MapValue().Kind() == protoreflect.MessageKind {
				v.Map().Range(func(_ protoreflect.MapKey, mv protoreflect.Value) bool {
					redact(mv.Message())
					return true
				})
			}
		default:
			redact(v.Message())
		}
		return true
	})
}

func hide(d *corev3.DataSource) {
	if d == nil {
		return
	}
	switch d.Specifier.(type) {
	case *corev3.DataSource_InlineBytes:
		d.Specifier = &corev3.DataSource_InlineBytes{InlineBytes: []byte(redacted)}
	case *corev3.DataSource_InlineString:
		d.Specifier = &corev3.DataSource_InlineString{InlineString: redacted}
	}
}
