package access

import (
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/clip"
)

// Pod is the Kubernetes pod that owns a socket. The kubelet is the source of its fields.
type Pod struct {
	UID            string `json:"uid"`
	Namespace      string `json:"namespace"`
	Name           string `json:"name"`
	ServiceAccount string `json:"serviceAccount,omitempty"`
}

// String formats the pod for messages: "pod shop/web-0".
func (p *Pod) String() string { return "pod " + p.path() }

// path returns the form that the key pod of a rule matches.
func (p *Pod) path() string { return p.Namespace + "/" + p.Name }

// owns reports whether a node id is that of the pod's Dataplane: MESH.NAME.NAMESPACE.
func (p *Pod) owns(id string) bool {
	mesh, name, _ := strings.Cut(id, ".")
	return mesh != "" && name == p.Name+"."+p.Namespace
}

// PodConn is a connection over the socket of a pod. [PeerOf] returns the pod as its peer.
type PodConn struct {
	*net.UnixConn
	Pod    *Pod
	Closed func() // called when the connection is closed; nil: not called
}

// Close closes the connection.
func (c *PodConn) Close() error {
	if c.Closed != nil {
		c.Closed()
	}
	return c.UnixConn.Close()
}

// SocketOwner returns the uid of the pod.
func (c *PodConn) SocketOwner() string { return c.Pod.UID }

// unixConn returns the Unix socket of a connection, and its pod if it has one.
func unixConn(c net.Conn) (*net.UnixConn, *Pod) {
	switch c := c.(type) {
	case *PodConn:
		return c.UnixConn, c.Pod
	case *net.UnixConn:
		return c, nil
	}
	return nil, nil
}

// ErrPodAdmin is the error of questions to an Envoy whose admin socket is only in its pod.
var ErrPodAdmin = errors.New("the admin socket of this Envoy is in its pod, where the agent cannot reach it; " +
	"a MeshMetric serves its statistics")

// InPod reports whether the peer is known to be in a Kubernetes pod, by its socket or its cgroup.
func (p Peer) InPod() bool { return p.Pod != nil || podOf(p.Cgroup) != "" }

// IsUser reports whether the ids of the peer are those of a user of this node. A pod chooses the
// ids of its processes, so they identify nothing.
func (p Peer) IsUser() bool { return p.Local && !p.Foreign && p.Pod == nil }

// byPod returns what a pod may do: act as the proxy of its own Dataplane, if a file or the API has
// defined that. Rules with the key pod can restrict this further. Other rules do not apply to pods.
func (p *Proxies) byPod(pod *Pod, t Target) (g Grant, why string) {
	if !pod.owns(t.ID) {
		return g, fmt.Sprintf("a pod may only use the node id of its own Dataplane, MESH.%s.%s; correct --service-node of "+
			"its Envoy", clip.Value(pod.Name), clip.Value(pod.Namespace))
	}
	g = Grant{Rule: "default of pods", StoredBy: true}
	for i := range p.rules {
		r := &p.rules[i].rule
		if r.Pod == "" {
			continue
		}
		g.Rule = ""
		if !glob(r.Pod, pod.path()) {
			continue
		}
		g.Rule = fmt.Sprintf("xds.access[%d]", i)
		if !anyGlob(r.Nodes, t.ID) {
			return g, g.Rule + " matches the pod but does not list the node id; add it to nodes there, " +
				"or put another item before it"
		}
		return g, ""
	}
	if g.Rule == "" {
		return g, fmt.Sprintf("no item of xds.access matches the pod; add one with pod: %q and nodes: [%q]",
			pod.path(), t.ID)
	}
	return g, ""
}

// CheckPod returns the fault in the key pod of a rule, or in the keys beside it, or "".
func (r *ProxyRule) CheckPod() string {
	switch {
	case r.Pod == "":
	case strings.Count(r.Pod, "/") != 1 || strings.HasPrefix(r.Pod, "/") || strings.HasSuffix(r.Pod, "/"):
		return fmt.Sprintf("pod: %.64q is not of the form NAMESPACE/NAME; write it like shop/* or shop/web-*", r.Pod)
	case r.Matcher != (Matcher{}) || r.Certificate != "":
		return "pod cannot be combined with user, group, uid, cgroup, token, or certificate; use separate items"
	case r.Bring || len(r.Services)+len(r.Tags) > 0:
		return "a pod cannot send its Dataplane; remove bring, services, and tags from the item with pod"
	}
	return ""
}
