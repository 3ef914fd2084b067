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

// RenderKey names the content of a resource.
type RenderKey struct{ TypeURL, Version string }

// RenderCache remembers rendered resources. Nobody may change what it returns.
type RenderCache interface {
	Get(RenderKey) json.RawMessage // nil: not known
	Put(RenderKey, json.RawMessage)
}

// Renderer renders resources as JSON, with proto field names in lowerCamelCase. Private keys and
// other secret values are replaced. The output is the same for the same resource. It must not be
// used by two goroutines at once.
type Renderer struct {
	redact *redact.Renderer
	cache  RenderCache
}

// NewRenderer returns a renderer that remembers resources in a cache; nil: nowhere. It fails when
// the program cannot tell which values are secret.
func NewRenderer(cache RenderCache) (*Renderer, error) {
	secrecy, err := secrets()
	if err != nil {
		return nil, err
	}
	return &Renderer{redact: redact.New(secrecy), cache: cache}, nil
}

// Render renders a resource of the type that has that rank. The error names both.
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
	if err == nil { // a patch may have moved one to where none is expected
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

// JSON is [Renderer.Config] without a cache.
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

// sensitive is the option by which Envoy's API marks fields with private keys and the like.
const sensitive = "udpa.annotations.sensitive"

// secrets returns what is hidden when a config is shown: the fields that Envoy's API marks, but not
// where a secret is kept. It fails when the program does not know the mark, so that nothing is
// shown for want of it.
func secrets() (func(protoreflect.FieldDescriptor) redact.Secrecy, error) {
	mark, err := protoregistry.GlobalTypes.FindExtensionByName(sensitive)
	if err != nil {
		return nil, fmt.Errorf("secret fields cannot be told from others without the option %s: %w", sensitive, err)
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
