package cluster

import (
	"errors"
	"fmt"
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/cache"

	"github.com/nearside-mesh/nearside/packaging/kubernetes/watcher/watch/convert"
)

// table holds the objects of one kind. World.mu guards it.
type table[T any] struct {
	objects map[convert.Key]T
	synced  bool
	// changed marks what depends on an object. before and after are zero values for a created and a
	// deleted object.
	changed func(k convert.Key, before, after T)
	// accept checks a complete list. An error keeps the objects, and the list is read again.
	accept func(map[convert.Key]T) error
	// retain keeps an object that was deleted.
	retain bool
}

func newTable[T any](changed func(k convert.Key, before, after T)) *table[T] {
	return &table[T]{objects: map[convert.Key]T{}, changed: changed}
}

func (t *table[T]) put(k convert.Key, v T) {
	before := t.objects[k]
	if reflect.DeepEqual(before, v) {
		return
	}
	t.objects[k] = v
	t.changed(k, before, v)
}

func (t *table[T]) remove(k convert.Key) {
	before, ok := t.objects[k]
	if !ok || t.retain {
		return
	}
	delete(t.objects, k)
	var none T
	t.changed(k, before, none)
}

// feed makes a table the store of a reflector.
type feed[O, T any] struct {
	w  *World
	t  *table[T]
	of func(O) T
	// full is called when the first complete list has been applied.
	full func()
}

var _ cache.ReflectorStore = (*feed[int, int])(nil)

func (f *feed[O, T]) Add(obj any) error    { return f.one(obj, f.t.put) }
func (f *feed[O, T]) Update(obj any) error { return f.one(obj, f.t.put) }
func (f *feed[O, T]) Resync() error        { return nil }

func (f *feed[O, T]) Delete(obj any) error {
	return f.one(obj, func(k convert.Key, _ T) { f.t.remove(k) })
}

func (f *feed[O, T]) one(obj any, apply func(convert.Key, T)) error {
	k, v, err := f.convert(obj)
	if err != nil {
		return err
	}
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	apply(k, v)
	return nil
}

func (f *feed[O, T]) convert(obj any) (k convert.Key, v T, err error) {
	o, ok := obj.(O)
	if !ok {
		return k, v, fmt.Errorf("unexpected object of type %T", obj)
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		return k, v, err
	}
	if m.GetName() == "" {
		return k, v, errors.New("an object has no name")
	}
	return convert.Key{Namespace: m.GetNamespace(), Name: m.GetName()}, f.of(o), nil
}

// Replace applies a complete list. The reflector calls it only after it has read all pages.
func (f *feed[O, T]) Replace(list []any, _ string) error {
	next := make(map[convert.Key]T, len(list))
	for _, obj := range list {
		k, v, err := f.convert(obj)
		if err != nil {
			return err
		}
		next[k] = v
	}
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	if f.t.accept != nil {
		if err := f.t.accept(next); err != nil {
			return err
		}
	}
	for k, v := range next {
		f.t.put(k, v)
	}
	for k := range f.t.objects {
		if _, ok := next[k]; !ok {
			f.t.remove(k)
		}
	}
	first := !f.t.synced
	f.t.synced = true
	if first {
		f.full()
	}
	return nil
}

// outage tells since when requests of one kind fail.
type outage struct {
	since time.Time
	err   string
}
