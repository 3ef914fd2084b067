package cluster

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/packaging/kubernetes/watcher/watch/convert"
)

// Items returns all items of a group, sorted. kind is empty except for custom resources.
func (w *World) Items(g Group, kind string) (out []Item) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch g {
	case Pods:
		out = itemsOf(g, "", w.pods.objects)
	case Services:
		out = itemsOf(g, "", w.services.objects)
	case Resources:
		for _, m := range w.config.objects {
			for name := range m {
				out = append(out, Item{Group: g, Key: convert.Key{Name: name}})
			}
		}
	case Policies:
		out = itemsOf(g, kind, w.policies[kind].objects)
	}
	slices.SortFunc(out, Item.Compare)
	return out
}

func itemsOf[T any](g Group, kind string, m map[convert.Key]T) []Item {
	out := make([]Item, 0, len(m))
	for k := range m {
		out = append(out, Item{g, kind, k})
	}
	return out
}

// Render returns the content of an item's file.
func (w *World) Render(i Item) (Desired, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch i.Group {
	case Pods:
		return w.renderPod(i.Key)
	case Services:
		return w.renderService(i.Key)
	case Resources:
		return w.renderConfig(i.Name), nil
	}
	p := w.policies[i.Kind].objects[i.Key]
	if p == nil {
		return Desired{}, nil
	}
	if p.Skip != "" {
		return Desired{Notes: []string{i.Kind + " " + i.Key.String() + ": " + p.Skip}}, nil
	}
	return Desired{Text: p.Text}, nil
}

func (w *World) renderPod(k convert.Key) (Desired, error) {
	p := w.pods.objects[k]
	if p == nil {
		return Desired{}, nil
	}
	if reason, noteworthy := convert.Skip(p); reason != "" {
		if noteworthy {
			return Desired{Notes: []string{fmt.Sprintf("Pod %s: %s", k, reason)}}, nil
		}
		return Desired{}, nil
	}
	for other := range w.byIP[p.IP] {
		if o := w.pods.objects[other]; o != nil && newer(o, p) {
			return Desired{Notes: []string{fmt.Sprintf("Pod %s: the newer pod %s has its IP address %s, so it has ended", k, other,
				p.IP)}}, nil
		}
	}
	services := make([]*convert.Service, 0, len(w.byNamespace[k.Namespace]))
	for s := range w.byNamespace[k.Namespace] {
		services = append(services, w.services.objects[s])
	}
	text, notes, err := convert.Dataplane(p, services, w.namespaces.objects[convert.Key{Name: k.Namespace}],
		w.nodes.objects[convert.Key{Name: p.Node}])
	for i := range notes {
		notes[i] = fmt.Sprintf("Pod %s: %s", k, notes[i])
	}
	return Desired{text, notes}, err
}

// newer reports whether pod a was created after b. Of two pods with one IP address, the older one
// has ended, although the kubelet has not reported it yet.
func newer(a, b *convert.Pod) bool {
	return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.UID, b.UID)) > 0
}

func (w *World) renderService(k convert.Key) (Desired, error) {
	s := w.services.objects[k]
	if s == nil {
		return Desired{}, nil
	}
	namespace := w.namespaces.objects[convert.Key{Name: k.Namespace}]
	if convert.SkipService(s, namespace) != "" {
		return Desired{}, nil
	}
	var list []*convert.Slice
	if s.Headless {
		for _, sl := range w.slices.objects {
			if sl.Namespace == k.Namespace && sl.Service == k.Name {
				list = append(list, sl)
			}
		}
	}
	text, notes, err := convert.MeshServices(s, list, namespace)
	return Desired{text, notes}, err
}

func (w *World) renderConfig(name string) Desired {
	for k, m := range w.config.objects {
		text, ok := m[name]
		if !ok {
			continue
		}
		switch path.Ext(name) {
		case ".yaml", ".yml", ".json":
			if !strings.HasPrefix(name, ".") {
				return Desired{Text: []byte(text)}
			}
		}
		return Desired{Notes: []string{fmt.Sprintf("ConfigMap %s: data[%q]: the name is not that of a resource file; end it "+
			"with .yaml, .yml, or .json", k, name)}}
	}
	return Desired{}
}
