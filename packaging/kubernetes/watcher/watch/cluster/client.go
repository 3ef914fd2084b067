package cluster

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// Client reads from the Kubernetes API over one connection. It has no code to write.
type Client struct {
	http    *http.Client
	typedBy map[schema.GroupVersion]*rest.RESTClient
	params  runtime.ParameterCodec
	meta    metadata.Interface
	dynamic dynamic.Interface
}

// NewClient returns a client. The clientset of client-go would link all API groups: it knows only
// the types that the watcher reads.
func NewClient(config *rest.Config) (*Client, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = 50, 100 // each kind needs two requests at the start
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, discoveryv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	out := &Client{http: client, typedBy: map[schema.GroupVersion]*rest.RESTClient{}, params: runtime.NewParameterCodec(scheme)}
	for gv, path := range map[schema.GroupVersion]string{
		corev1.SchemeGroupVersion: "/api", discoveryv1.SchemeGroupVersion: "/apis", kumaVersion(): "/apis",
	} {
		if out.typedBy[gv], err = restClient(config, client, gv, path, scheme); err != nil {
			return nil, err
		}
	}
	if out.meta, err = metadata.NewForConfigAndClient(metadata.ConfigFor(config), client); err != nil {
		return nil, err
	}
	out.dynamic, err = dynamic.NewForConfigAndClient(dynamic.ConfigFor(config), client)
	return out, err
}

func restClient(config *rest.Config, client *http.Client, gv schema.GroupVersion, path string,
	scheme *runtime.Scheme) (*rest.RESTClient, error) {
	config = rest.CopyConfig(config)
	config.GroupVersion, config.APIPath = &gv, path
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	return rest.RESTClientForConfigAndClient(config, client)
}

// Close closes idle connections.
func (c *Client) Close() { utilnet.CloseIdleConnectionsFor(c.http.Transport) }

// kinds returns the resources of Kuma's API group, or none if the cluster does not have it.
func (c *Client) kinds(ctx context.Context) ([]metav1.APIResource, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	var list metav1.APIResourceList
	body, err := c.typedBy[kumaVersion()].Get().AbsPath("/apis/"+kumaVersion().String()).
		SetHeader("Accept", runtime.ContentTypeJSON).Do(ctx).Raw()
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err == nil {
		err = json.Unmarshal(body, &list)
	}
	var out []metav1.APIResource
	for _, r := range list.APIResources {
		if !strings.Contains(r.Name, "/") { // not a subresource
			out = append(out, r)
		}
	}
	return out, err
}

// with adds the selectors of a source to the options of a request.
func with(o metav1.ListOptions, field fields.Selector, label string) metav1.ListOptions {
	if field != nil {
		o.FieldSelector = field.String()
	}
	o.LabelSelector = label
	return o
}

func (c *Client) typed(gvr schema.GroupVersionResource, namespace string, field fields.Selector, label string,
	list, of runtime.Object, store cache.ReflectorStore) source {
	client := c.typedBy[gvr.GroupVersion()]
	request := func(o *metav1.ListOptions) *rest.Request {
		*o = with(*o, field, label)
		return client.Get().NamespaceIfScoped(namespace, namespace != "").Resource(gvr.Resource)
	}
	return source{name: gvr.Resource, of: of, store: store,
		list: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			out := list.DeepCopyObject()
			err := request(&o).VersionedParams(&o, c.params).Do(ctx).Into(out)
			trim(out)
			return out, err
		},
		watch: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.Watch = true
			r := request(&o)
			if o.TimeoutSeconds != nil {
				r = r.Timeout(time.Duration(*o.TimeoutSeconds) * time.Second)
			}
			return r.VersionedParams(&o, c.params).Watch(ctx)
		}}
}

// trim drops the large unused parts of a page of a list, which the reflector keeps until it has read
// the last page.
func trim(list runtime.Object) {
	switch list := list.(type) {
	case *corev1.PodList:
		for i := range list.Items {
			p := &list.Items[i]
			p.ManagedFields, p.Spec.Volumes, p.Spec.Affinity, p.Spec.Tolerations = nil, nil, nil, nil
			for _, containers := range [][]corev1.Container{p.Spec.Containers, p.Spec.InitContainers} {
				for j := range containers {
					c := &containers[j]
					containers[j] = corev1.Container{Name: c.Name, Ports: c.Ports, RestartPolicy: c.RestartPolicy}
				}
			}
		}
	case *corev1.ServiceList:
		for i := range list.Items {
			list.Items[i].ManagedFields = nil
		}
	case *discoveryv1.EndpointSliceList:
		for i := range list.Items {
			list.Items[i].ManagedFields = nil
		}
	}
}

func (c *Client) metadata(gvr schema.GroupVersionResource, field fields.Selector, store cache.ReflectorStore) source {
	r := c.meta.Resource(gvr)
	return source{name: gvr.Resource, of: &metav1.PartialObjectMetadata{}, store: store,
		list: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return r.List(ctx, with(o, field, ""))
		},
		watch: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return r.Watch(ctx, with(o, field, ""))
		}}
}

func (c *Client) custom(gvr schema.GroupVersionResource, kind string, store cache.ReflectorStore) source {
	r := c.dynamic.Resource(gvr)
	of := &unstructured.Unstructured{}
	of.SetGroupVersionKind(gvr.GroupVersion().WithKind(kind))
	return source{name: gvr.Resource, of: of, store: store,
		list: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return r.List(ctx, o)
		},
		watch: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return r.Watch(ctx, o)
		}}
}
