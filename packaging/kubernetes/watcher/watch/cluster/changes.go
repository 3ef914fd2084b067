package cluster

import "github.com/nearside-mesh/nearside/packaging/kubernetes/watcher/watch/convert"

// Each function marks the files that an object has an effect on. w.mu is held.

func (w *World) podChanged(k convert.Key, before, after *convert.Pod) {
	for _, p := range []*convert.Pod{before, after} {
		if p == nil || p.IP == "" {
			continue
		}
		for other := range w.byIP[p.IP] {
			w.mark(Item{Group: Pods, Key: other})
		}
		unindex(w.byIP, p.IP, k)
	}
	if after != nil {
		if reason, _ := convert.Skip(after); reason == "" {
			index(w.byIP, after.IP, k)
		}
	}
	w.mark(Item{Group: Pods, Key: k})
}

func (w *World) serviceChanged(k convert.Key, before, after *convert.Service) {
	if after == nil {
		unindex(w.byNamespace, k.Namespace, k)
	} else {
		index(w.byNamespace, k.Namespace, k)
	}
	w.mark(Item{Group: Services, Key: k})
	if !w.ready[Pods] {
		return // all pods follow
	}
	for pk, p := range w.pods.objects {
		for _, s := range []*convert.Service{before, after} {
			if s != nil && convert.Selects(s, p.Namespace, p.Labels) {
				w.mark(Item{Group: Pods, Key: pk})
			}
		}
	}
}

func (w *World) sliceChanged(k convert.Key, before, after *convert.Slice) {
	for _, s := range []*convert.Slice{before, after} {
		if s != nil {
			w.mark(Item{Group: Services, Key: convert.Key{Namespace: k.Namespace, Name: s.Service}})
		}
	}
}

func (w *World) namespaceChanged(k convert.Key, _, _ *convert.Meta) {
	for s := range w.byNamespace[k.Name] {
		w.mark(Item{Group: Services, Key: s})
	}
	for p := range w.pods.objects {
		if p.Namespace == k.Name {
			w.mark(Item{Group: Pods, Key: p})
		}
	}
}

func (w *World) nodeChanged(k convert.Key, _, _ *convert.Meta) {
	for key, p := range w.pods.objects {
		if p.Node == k.Name {
			w.mark(Item{Group: Pods, Key: key})
		}
	}
}

func (w *World) configChanged(_ convert.Key, before, after map[string]string) {
	for _, m := range []map[string]string{before, after} {
		for name := range m {
			w.mark(Item{Group: Resources, Key: convert.Key{Name: name}})
		}
	}
	if !w.ready[Resources] {
		w.ready[Resources], w.batch.Full[Resources] = true, true
		w.wake()
	}
}

func index(m map[string]map[convert.Key]bool, at string, k convert.Key) {
	if m[at] == nil {
		m[at] = map[convert.Key]bool{}
	}
	m[at][k] = true
}

func unindex(m map[string]map[convert.Key]bool, at string, k convert.Key) {
	if delete(m[at], k); len(m[at]) == 0 {
		delete(m, at)
	}
}
