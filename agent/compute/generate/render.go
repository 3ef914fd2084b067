package generate

import (
	"encoding/json"
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/nearside-mesh/nearside/agent/base/redact"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/model/secret"
)

// RenderKey identifies the content of a resource.
type RenderKey struct{ TypeURL, Version string }

// RenderCache caches rendered resources. Callers must not modify the result of Get.
type RenderCache interface {
	Get(RenderKey) json.RawMessage // nil if unknown
	Put(RenderKey, json.RawMessage)
}

// Renderer renders resources as JSON with proto field names in lowerCamelCase. It replaces private
// keys and other secret values. The output is deterministic. A Renderer is not safe for concurrent
// use.
type Renderer struct {
	redact *redact.Renderer
	cache  RenderCache
}

// NewRenderer returns a renderer with a cache, which may be nil. It fails if the program cannot
// identify secret fields.
func NewRenderer(cache RenderCache) (*Renderer, error) {
	secrecy, err := secrets()
	if err != nil {
		return nil, err
	}
	return &Renderer{redact: redact.New(secrecy), cache: cache}, nil
}

// Render renders a resource of the type with the given rank. Errors name the type and the resource.
func (r *Renderer) Render(rank int, res *draft.Resource) (json.RawMessage, error) {
	key := RenderKey{draft.Types[rank], res.Version}
	if r.cache != nil {
		if out := r.cache.Get(key); out != nil {
			return out, nil
		}
	}
	t, err := protoregistry.GlobalTypes.FindMessageByURL(key.TypeURL)
	if err != nil {
		return nil, err
	}
	out, err := r.redact.JSON(t, res.Body())
	if err == nil { // a patch may have put a key into an unexpected field
		out, err = secret.WithoutKeys(out)
	}
	if err != nil {
		return nil, fmt.Errorf("%s %q: %w", draft.Types[rank], res.Name, err)
	}
	if r.cache != nil {
		r.cache.Put(key, out)
	}
	return out, nil
}

// JSON is like [Renderer.Config] without a cache.
func (p *Proxy) JSON() (map[string]map[string]json.RawMessage, error) {
	r, err := NewRenderer(nil)
	if err != nil {
		return nil, err
	}
	return r.Config(p)
}

// Config renders a config as {type URL: {resource name: resource}}.
func (r *Renderer) Config(p *Proxy) (map[string]map[string]json.RawMessage, error) {
	out := map[string]map[string]json.RawMessage{}
	for rank, list := range p.Sealed.Resources {
		if len(list) == 0 {
			continue
		}
		m := make(map[string]json.RawMessage, len(list))
		for _, res := range list {
			var err error
			if m[res.Name], err = r.Render(rank, res); err != nil {
				return nil, err
			}
		}
		out[draft.Types[rank]] = m
	}
	return out, nil
}

// sensitive is the option with which Envoy's API marks fields that hold private keys and other
// secrets.
const sensitive = "udpa.annotations.sensitive"

// secrets returns which fields are hidden: those that Envoy's API marks, but not the location of a
// secret. It fails if the program does not know the mark, so that secrets are never shown by
// accident.
func secrets() (func(protoreflect.FieldDescriptor) redact.Secrecy, error) {
	mark, err := protoregistry.GlobalTypes.FindExtensionByName(sensitive)
	if err != nil {
		return nil, fmt.Errorf("secret fields are unknown without the option %s: %w", sensitive, err)
	}
	return func(f protoreflect.FieldDescriptor) redact.Secrecy {
		switch f.FullName() {
		case "envoy.config.core.v3.DataSource.filename",
			"envoy.config.core.v3.DataSource.environment_variable",
			"envoy.config.core.v3.DataSource.watched_directory":
			return redact.Show
		}
		if marked, ok := proto.GetExtension(f.Options(), mark).(bool); ok && marked {
			return redact.Hide
		}
		return redact.Inherit
	}, nil
}
