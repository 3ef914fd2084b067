package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/nearside-mesh/nearside/packaging/kubernetes/watcher/watch/convert"
)

// Times of requests.
const (
	listTimeout  = time.Minute
	minBackoff   = 300 * time.Millisecond
	maxBackoff   = 5 * time.Second
	discoverWait = 30 * time.Second
)

// source is a kind of objects that a reflector follows.
type source struct {
	name  string
	list  func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watch func(context.Context, metav1.ListOptions) (watch.Interface, error)
	of    any // an object of the type
	store cache.ReflectorStore
}

// Follow keeps the world up to date until ctx ends.
func (w *World) Follow(ctx context.Context, c *Client, log *slog.Logger) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, s := range w.sources(c) {
		wg.Go(func() { w.follow(ctx, s, log) })
	}
	if len(w.o.System) == 0 {
		return
	}
	followed := map[string]bool{}
	for ctx.Err() == nil {
		kinds, err := c.kinds(ctx)
		w.outcome("discovery", err, log)
		for _, k := range kinds {
			if followed[k.Kind] || !slices.Contains(convert.Kinds(), k.Kind) {
				continue
			}
			followed[k.Kind] = true
			s := w.resourceSource(c, k)
			wg.Go(func() { w.follow(ctx, s, log) })
		}
		if err != nil {
			wait(ctx, maxBackoff)
		} else {
			wait(ctx, discoverWait)
		}
	}
}

// follow lists and watches one kind. It never gives up.
func (w *World) follow(ctx context.Context, s source, log *slog.Logger) {
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			ctx, cancel := context.WithTimeout(ctx, listTimeout)
			defer cancel()
			if o.ResourceVersion == "0" {
				o.ResourceVersion = "" // an API server that lags behind could miss what has files already
			}
			return s.list(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			out, err := s.watch(ctx, o)
			if err == nil {
				w.outcome(s.name, nil, log)
			} else if utilnet.IsConnectionRefused(err) {
				err = errors.New(err.Error()) // the reflector would wait for up to a minute
			}
			return out, err
		},
	}
	r := cache.NewReflectorWithOptions(lw, s.of, s.store, cache.ReflectorOptions{Name: s.name})
	for backoff := minBackoff; ctx.Err() == nil; {
		began := time.Now()
		err := r.ListAndWatchWithContext(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			w.outcome(s.name, err, log)
		}
		if backoff = min(2*backoff, maxBackoff); err == nil || time.Since(began) > time.Minute {
			backoff = minBackoff
		}
		wait(ctx, backoff/2+rand.N(backoff/2))
	}
}

// outcome records whether requests of a kind succeed.
func (w *World) outcome(name string, err error, log *slog.Logger) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before, failed := w.outages[name]
	switch {
	case err == nil && failed:
		delete(w.outages, name)
		log.Info("the Kubernetes API answers again", "kind", name, "after", w.now().Sub(before.since).Round(time.Millisecond))
	case err != nil && !failed:
		w.outages[name] = outage{w.now(), err.Error()}
		log.Warn("cannot read from the Kubernetes API; all files stay as they are", "kind", name, "error", err)
	case err != nil:
		w.outages[name] = outage{before.since, err.Error()}
	default:
		return
	}
	w.wake()
}

func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

func (w *World) sources(c *Client) []source {
	var ofNode, itself fields.Selector
	podOf := convert.PodOf
	if w.o.Node != "" {
		podOf = convert.LocalPodOf
		ofNode = fields.OneTermEqualSelector("spec.nodeName", w.o.Node)
		itself = fields.OneTermEqualSelector(metav1.ObjectNameField, w.o.Node)
	}
	core := corev1.SchemeGroupVersion
	out := []source{
		c.typed(core.WithResource("pods"), "", ofNode, "", &corev1.PodList{}, &corev1.Pod{},
			&feed[*corev1.Pod, *convert.Pod]{w, w.pods, podOf, w.synced}),
		c.typed(core.WithResource("services"), "", nil, "", &corev1.ServiceList{}, &corev1.Service{},
			&feed[*corev1.Service, *convert.Service]{w, w.services, convert.ServiceOf, w.synced}),
		c.typed(discoveryv1.SchemeGroupVersion.WithResource("endpointslices"), "", nil, corev1.IsHeadlessService,
			&discoveryv1.EndpointSliceList{}, &discoveryv1.EndpointSlice{},
			&feed[*discoveryv1.EndpointSlice, *convert.Slice]{w, w.slices, convert.SliceOf, w.synced}),
		c.metadata(core.WithResource("namespaces"), nil,
			&feed[*metav1.PartialObjectMetadata, *convert.Meta]{w, w.namespaces, convert.NamespaceOf, w.synced}),
		c.metadata(core.WithResource("nodes"), itself,
			&feed[*metav1.PartialObjectMetadata, *convert.Meta]{w, w.nodes, convert.NodeOf, w.synced}),
	}
	if ns, name, ok := strings.Cut(w.o.Config, "/"); ok {
		only := fields.OneTermEqualSelector(metav1.ObjectNameField, name)
		out = append(out, c.typed(core.WithResource("configmaps"), ns, only, "", &corev1.ConfigMapList{}, &corev1.ConfigMap{},
			&feed[*corev1.ConfigMap, map[string]string]{w, w.config, dataOf, func() {}}))
	}
	return out
}

// dataOf returns the content of a ConfigMap. It is never nil, because an empty one removes all
// resources, and a missing one none.
func dataOf(c *corev1.ConfigMap) map[string]string {
	if c.Data == nil {
		return map[string]string{}
	}
	return c.Data
}

// resourceSource follows a kind of Kuma's custom resources.
func (w *World) resourceSource(c *Client, k metav1.APIResource) source {
	t := newTable(func(key convert.Key, _, _ *policy) { w.mark(Item{Policies, k.Kind, key}) })
	w.mu.Lock()
	w.policies[k.Kind] = t
	w.mu.Unlock()
	of := func(u *unstructured.Unstructured) *policy {
		text, skip, err := convert.Resource(u.Object, w.o.System)
		if err != nil {
			skip = fmt.Sprintf("the content cannot be written as YAML: %v", err)
		}
		return &policy{text, skip}
	}
	gvr := kumaVersion().WithResource(k.Name)
	return c.custom(gvr, k.Kind, &feed[*unstructured.Unstructured, *policy]{w, t, of, func() {
		w.batch.Kinds[k.Kind] = true
		w.wake()
	}})
}

func kumaVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: "kuma.io", Version: "v1alpha1"}
}
