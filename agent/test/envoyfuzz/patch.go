// Package envoyfuzz makes unusual but plausible inputs, to compare the config check with Envoys.
package envoyfuzz

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strconv"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/nearside-mesh/nearside/agent/base/jsonpatch"
	"github.com/nearside-mesh/nearside/agent/compute/envoy"
)

// Document returns a policy with the name odd that makes the change in the config of a proxy: the
// changed policy, or a MeshProxyPatch. It returns false if no policy can make the change, as for
// endpoints, secrets, and fields of a route configuration.
func (x *Input) Document() (string, bool) {
	if x.Policy != "" {
		return x.Policy, true
	}
	if x.Base == nil || x.Config == nil {
		return "", false
	}
	before, after := resources(x.Base), resources(x.Config)
	if len(before) != len(after) {
		return "", false
	}
	var mods []any
	for i, m := range before {
		if proto.Equal(m, after[i]) {
			continue
		}
		change, ok := modifications(m, after[i])
		if !ok {
			return "", false
		}
		mods = append(mods, change...)
	}
	out, err := json.Marshal(map[string]any{"type": "MeshProxyPatch", "mesh": "default", "name": "odd",
		"spec": map[string]any{"targetRef": map[string]any{"kind": "Mesh"},
			"default": map[string]any{"appendModifications": mods}}})
	return string(out), err == nil && len(mods) > 0
}

// modifications returns the modifications of a MeshProxyPatch that change a resource.
func modifications(before, after proto.Message) ([]any, bool) {
	patch := func(target string, match map[string]any, a, b proto.Message) []any {
		return []any{map[string]any{target: map[string]any{"operation": "Patch", "match": match,
			"jsonPatches": difference("", object(a), object(b))}}}
	}
	switch m := before.(type) {
	case *routev3.RouteConfiguration:
		changed := after.(*routev3.RouteConfiguration)
		rest := proto.Clone(changed).(*routev3.RouteConfiguration)
		rest.VirtualHosts = m.VirtualHosts
		if !proto.Equal(rest, m) || len(m.VirtualHosts) != len(changed.VirtualHosts) {
			return nil, false
		}
		var out []any
		for i, h := range m.VirtualHosts {
			if !proto.Equal(h, changed.VirtualHosts[i]) {
				out = append(out, patch("virtualHost", map[string]any{"name": h.Name, "routeConfigurationName": m.Name}, h,
					changed.VirtualHosts[i])...)
			}
		}
		return out, true
	case interface{ GetName() string }:
		target, known := map[string]string{"Cluster": "cluster",
			"Listener": "listener"}[string(before.ProtoReflect().Descriptor().Name())]
		return patch(target, map[string]any{"name": m.GetName()}, before, after), known
	}
	return nil, false
}

// difference returns JSON Patch operations that make after from before.
func difference(path string, before, after any) []any {
	var out []any
	switch b := after.(type) {
	case map[string]any:
		a, ok := before.(map[string]any)
		if !ok {
			break
		}
		for _, field := range slices.Sorted(maps.Keys(a)) {
			if _, found := b[field]; !found {
				out = append(out, map[string]any{"op": "remove", "path": path + token(field)})
			}
		}
		for _, field := range slices.Sorted(maps.Keys(b)) {
			if was, found := a[field]; found && a["@type"] == b["@type"] {
				out = append(out, difference(path+token(field), was, b[field])...)
			} else {
				out = append(out, map[string]any{"op": "add", "path": path + token(field), "value": b[field]})
			}
		}
		return out
	case []any:
		a, ok := before.([]any)
		switch {
		case ok && len(a) == len(b):
			for i := range b {
				out = append(out, difference(path+"/"+strconv.Itoa(i), a[i], b[i])...)
			}
			return out
		case ok && len(a) == len(b)-1 && same(a, b[1:]):
			return []any{map[string]any{"op": "add", "path": path + "/0", "value": b[0]}}
		}
	}
	if !same(before, after) {
		out = append(out, map[string]any{"op": "replace", "path": path, "value": after})
	}
	return out
}

// same reports whether two JSON values are equal.
func same(a, b any) bool {
	x, err := json.Marshal(a)
	if err != nil {
		return false
	}
	y, err := json.Marshal(b)
	return err == nil && bytes.Equal(x, y)
}

func token(field string) string {
	return jsonpatch.FormatPointer([]string{field})
}

func object(m proto.Message) any {
	var out map[string]any
	if text, err := protojson.Marshal(m); err == nil {
		_ = json.Unmarshal(text, &out)
	}
	return out
}

// resources decodes a config.
func resources(s *envoy.Snapshot) []proto.Message {
	var out []proto.Message
	for k, list := range s {
		for _, r := range list {
			m := envoy.Kind(k).New()
			if err := proto.Unmarshal(r.Body(), m); err == nil {
				out = append(out, m)
			}
		}
	}
	return out
}

// sealed encodes messages as a config; nil if one cannot be encoded.
func sealed(list []proto.Message) *envoy.Snapshot {
	out := &envoy.Snapshot{}
	for _, m := range list {
		r, err := envoy.NewResource(m)
		if err != nil {
			return nil
		}
		k := slices.Index(envoy.KindURLs[:], envoy.TypePrefix+string(m.ProtoReflect().Descriptor().FullName()))
		out[k] = append(out[k], r)
	}
	return out
}

func fromJSON(m proto.Message, text string) error {
	return protojson.Unmarshal([]byte(text), m)
}
