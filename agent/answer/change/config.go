package change

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"hash"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/jsonpatch"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/model/api"
)

// Config returns the JSON patch (RFC 6902) from one config of a proxy to another, as documents in
// the form of xds in _config. It is empty, but not nil, if the configs are equal. Config skips
// resources with the same bytes. Nil is a config without resources.
func Config(r *generate.Renderer, from, to *generate.Proxy) (jsonpatch.Patch, error) {
	return (&configDiffer{renderer: r}).patch(from, to, generate.Difference(from, to))
}

// configDiffer compares resources of configs. It caches results, because many proxies share
// resources.
type configDiffer struct {
	renderer *generate.Renderer
	pairs    map[pairKey]*pair // nil disables the cache
	shared   map[sharedKey]*pair
	// own holds the names of only the current proxy, longest first, such as its services and
	// addresses, which occur in most of its listeners. If a change does not contain them, it is the
	// same on other proxies.
	own []string
}

// pairKey identifies two resources of one name by content, which includes the name.
type pairKey struct{ typeURL, from, to string }

// sharedKey identifies two resources without the names of their proxy. Proxies with names of the
// same length can share it.
type sharedKey struct {
	typeURL  string
	from, to [sha256.Size]byte
}

// pair is a resource before and after a change.
type pair struct {
	patch  jsonpatch.Patch         // of {type URL: {name: resource}}
	value  json.RawMessage         // the resource, if it is new
	fields []jsonpatch.FieldChange // if both exist; must not be modified
}

// maxPairs is the maximum number of cached pairs.
const maxPairs = 50_000

// pair compares a resource.
func (d *configDiffer) pair(c *generate.Change) (*pair, error) {
	k := pairKey{typeURL: c.TypeURL}
	if c.From != nil {
		k.from = c.From.Version
	}
	if c.To != nil {
		k.to = c.To.Version
	}
	if p := d.pairs[k]; p != nil {
		return p, nil
	}
	p, err := d.compare(c)
	if err == nil && d.pairs != nil && len(d.pairs) < maxPairs {
		d.pairs[k] = p
	}
	return p, err
}

// compare compares a resource that is not cached for this proxy.
func (d *configDiffer) compare(c *generate.Change) (*pair, error) {
	x, mayShare := sharedKey{typeURL: c.TypeURL}, d.shared != nil && len(d.own) > 0 && c.From != nil && c.To != nil
	if mayShare {
		x.from, x.to = d.without(c.From.Body()), d.without(c.To.Body())
		if p := d.shared[x]; p != nil {
			return p, nil
		}
	}
	from, to, err := d.renderer.Both(c)
	if err != nil {
		return nil, err
	}
	p := &pair{value: to}
	path := jsonpatch.FormatPointer([]string{c.TypeURL, c.Name})
	switch {
	case from == nil:
		p.patch = jsonpatch.Patch{{Op: jsonpatch.Add, Path: path, Value: to}}
	case to == nil:
		p.patch = jsonpatch.Patch{{Op: jsonpatch.Remove, Path: path}}
	default:
		a, b, err := jsonpatch.DecodePair(from, to)
		if err != nil {
			return nil, err
		}
		in := func(v any) any { return map[string]any{c.TypeURL: map[string]any{c.Name: v}} }
		p.patch = jsonpatch.Diff(in(a), in(b))
		p.fields = jsonpatch.Fields(a, p.patch, 2)
		if mayShare && len(d.shared) < maxPairs && !d.tells(c.Name, p) {
			d.shared[x] = p
		}
	}
	return p, nil
}

// without hashes a resource without the names of its proxy.
func (d *configDiffer) without(body []byte) [sha256.Size]byte {
	h := sha256.New()
	writeWithout(h, body, d.own)
	return [sha256.Size]byte(h.Sum(nil))
}

// writeWithout writes the bytes between the proxy's own names, each with its length, and the index
// of the name after it.
func writeWithout(h hash.Hash, body []byte, own []string) {
	if len(own) == 0 {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(body))))
		h.Write(body)
		return
	}
	for {
		before, after, found := bytes.Cut(body, []byte(own[0]))
		writeWithout(h, before, own[1:])
		if !found {
			h.Write([]byte{0})
			return
		}
		h.Write(binary.AppendUvarint(nil, uint64(len(own))))
		body = after
	}
}

// tells reports whether a pair of resources contains names of the proxy.
func (d *configDiffer) tells(name string, p *pair) bool {
	return slices.ContainsFunc(d.own, func(s string) bool {
		return strings.Contains(name, s) || slices.ContainsFunc(p.fields, func(f jsonpatch.FieldChange) bool {
			return strings.Contains(f.Path, s) || bytes.Contains(f.Before, []byte(s)) || bytes.Contains(f.After, []byte(s))
		})
	})
}

// patch joins the patches of changed resources, which are sorted, into a patch of the whole config.
func (d *configDiffer) patch(from, to *generate.Proxy, changes []generate.Change) (jsonpatch.Patch, error) {
	out := jsonpatch.Patch{}
	for i := 0; i < len(changes); {
		typeURL := changes[i].TypeURL
		n := i
		for n < len(changes) && changes[n].TypeURL == typeURL {
			n++
		}
		path := jsonpatch.FormatPointer([]string{typeURL})
		// The document has no member for a type without resources.
		switch all := map[string]any{}; {
		case !to.Has(typeURL):
			out = append(out, jsonpatch.Operation{Op: jsonpatch.Remove, Path: path})
		default:
			for ; i < n; i++ {
				p, err := d.pair(&changes[i])
				if err != nil {
					return nil, err
				}
				if from.Has(typeURL) {
					out = append(out, p.patch...)
				} else {
					all[changes[i].Name] = p.value
				}
			}
			if !from.Has(typeURL) {
				out = append(out, jsonpatch.Operation{Op: jsonpatch.Add, Path: path, Value: all})
			}
		}
		i = n
	}
	return out, nil
}

// items returns the changed items of a config without causes.
func (d *configDiffer) items(changes []generate.Change) ([]changedItem, error) {
	out := make([]changedItem, len(changes))
	for i := range changes {
		c := &changes[i]
		out[i] = changedItem{typ: c.TypeURL, name: c.Name, action: actionOf(c.From != nil, c.To != nil)}
		if out[i].action == api.ActionChanged {
			p, err := d.pair(c)
			if err != nil {
				return nil, err
			}
			out[i].fields = p.fields
		}
	}
	return out, nil
}

// changedItem is a changed resource or rule. Other items may share the fields.
type changedItem struct {
	typ, name, action string
	fields            []jsonpatch.FieldChange
}

// newPart counts items, which are sorted by type.
func newPart(items []changedItem) api.PartDiff {
	p := api.PartDiff{Summary: []api.TypeDiff{}, Patch: []jsonpatch.Operation{}, Items: []api.ItemDiff{}}
	for _, it := range items {
		if n := len(p.Summary); n == 0 || p.Summary[n-1].Type != it.typ {
			p.Summary = append(p.Summary, api.TypeDiff{Type: it.typ})
		}
		switch s := &p.Summary[len(p.Summary)-1]; it.action {
		case api.ActionCreated:
			s.Added++
		case api.ActionDeleted:
			s.Removed++
		default:
			s.Changed++
		}
	}
	return p
}

// listItems adds the items to a part without causes.
func listItems(p *api.PartDiff, items []changedItem) {
	for _, it := range items {
		item := api.ItemDiff{Type: it.typ, Name: it.name, Action: it.action, Changes: make([]api.FieldDiff, len(it.fields)),
			By: []api.Ref{}}
		for i, f := range it.fields {
			item.Changes[i] = api.FieldDiff{FieldChange: f, By: []api.Ref{}}
		}
		p.Items = append(p.Items, item)
	}
}

// actionOf returns the action that leads from was to is.
func actionOf(was, is bool) string {
	switch {
	case !was:
		return api.ActionCreated
	case !is:
		return api.ActionDeleted
	}
	return api.ActionChanged
}

// sizeOf returns the approximate size of a patch in bytes.
func sizeOf(p jsonpatch.Patch) int {
	n := 0
	for i := range p {
		n += len(p[i].Path) + sizeOfValue(p[i].Value)
	}
	return n
}

func sizeOfValue(v any) int {
	n := 8
	switch v := v.(type) {
	case json.RawMessage:
		n += len(v)
	case string:
		n += len(v)
	case []any:
		for _, x := range v {
			n += sizeOfValue(x)
		}
	case map[string]any:
		for k, x := range v {
			n += len(k) + sizeOfValue(x)
		}
	}
	return n
}
