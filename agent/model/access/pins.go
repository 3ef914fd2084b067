package access

import (
	"fmt"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Labels that pin a Dataplane to an Envoy. Only root, and an Envoy that has all pinned properties,
// may act as its proxy.
const (
	LabelUser   = "nearside.io/user"   // user of the process, by name or number
	LabelUnit   = resource.LabelUnit   // unit of the system's systemd, such as envoy@web.service
	LabelCgroup = resource.LabelCgroup // cgroup or a parent of it; * matches characters of one element
	LabelPod    = "nearside.io/pod"    // uid of a Kubernetes pod
)

// Pins are the values of the labels that pin a Dataplane; "" for a label that it does not have.
type Pins struct{ User, Unit, Cgroup, Pod string }

// PinsOf returns the pins in the labels of a resource.
func PinsOf(labels map[string]string) Pins {
	return Pins{User: labels[LabelUser], Unit: labels[LabelUnit], Cgroup: labels[LabelCgroup], Pod: labels[LabelPod]}
}

// pinsOf returns the pins among labels of the form KEY=VALUE.
func pinsOf(labels []string) Pins {
	found := map[string]string{}
	for _, l := range labels {
		if key, value, _ := strings.Cut(l, "="); isPin(key) {
			found[key] = value
		}
	}
	return PinsOf(found)
}

// isPin reports whether a label pins a Dataplane.
func isPin(label string) bool {
	return label == LabelUser || label == LabelUnit || label == LabelCgroup || label == LabelPod
}

// Examine is [Proxies.Decide] for a process that is not the Envoy, but has its user, groups, and
// token. It ignores cgroups, and returns the pins and rules that depend on them.
func (p *Proxies) Examine(peer *Peer, t Target) (g Grant, untested []string, err error) {
	by := *peer
	by.Cgroup = ""
	for _, pin := range [...]struct {
		label string
		value *string
	}{{LabelUnit, &t.Pins.Unit}, {LabelCgroup, &t.Pins.Cgroup}, {LabelPod, &t.Pins.Pod}} {
		if *pin.value != "" && !peer.Root() && (peer.Pod == nil || pin.label != LabelPod) {
			untested = append(untested, fmt.Sprintf("the label %s: %s", pin.label, clip.Value(*pin.value)))
			if *pin.value = ""; t.Pins == (Pins{}) {
				t.Stored = false // it is pinned, although no pin is left
			}
		}
	}
	g, err = p.Decide(&by, t)
	for i := range p.rules {
		if err != nil && p.rules[i].rule.Cgroup != "" {
			untested = append(untested, fmt.Sprintf("xds.access[%d], which has a cgroup", i))
		}
	}
	return g, untested, err
}

// unmet returns why a peer does not have all pinned properties, or "".
func (p *Proxies) unmet(pins Pins, peer *Peer) string {
	here := peer.Local && (!peer.Foreign || peer.Pod != nil)
	path, pod := peer.Cgroup, peer.PodUID()
	for _, pin := range [...]struct {
		label, value, name, have string
		ok                       bool
	}{
		{LabelUser, pins.User, "user", peer.Owner(), pins.User != "" && p.users.is(peer, pins.User)},
		{LabelUnit, pins.Unit, "unit", unitOf(path), here && unitOf(path) == pins.Unit},
		{LabelCgroup, pins.Cgroup, "cgroup", path, here && path != "" && globPath(pins.Cgroup, path)},
		{LabelPod, pins.Pod, "pod", pod, here && pod == pins.Pod},
	} {
		if pin.value == "" || pin.ok {
			continue
		}
		if pin.have == "" || !here {
			pin.have = "unknown"
		}
		return fmt.Sprintf("its Dataplane has the label %s: %s, but the %s of this peer is %s; run its Envoy with that %s, "+
			"or correct the label", pin.label, clip.Value(pin.value), pin.name, clip.Value(pin.have), pin.name)
	}
	return ""
}

// PodUID returns the uid of the pod to which a peer belongs, by its socket or its cgroup, or "".
func (p *Peer) PodUID() string {
	if p.Pod != nil {
		return p.Pod.UID
	}
	return podOf(p.Cgroup)
}

// unitOf returns the unit of systemd's system manager to which a cgroup belongs, or "". It is the
// first element that is not a slice. Therefore it is never a unit of a user's manager, which is
// below user@UID.service, nor a cgroup that a process creates below its unit.
func unitOf(cgroup string) string {
	for e := range strings.SplitSeq(strings.TrimPrefix(cgroup, "/"), "/") {
		switch {
		case strings.HasSuffix(e, ".slice"):
			continue
		case strings.HasSuffix(e, ".service"), strings.HasSuffix(e, ".scope"):
			return e
		}
		return ""
	}
	return ""
}

// podOf returns the uid of the Kubernetes pod to which a cgroup belongs, or "". The kubelet creates
// /kubepods[/besteffort|/burstable]/podUID, or with systemd
// /kubepods.slice[/kubepods-QOS.slice]/kubepods[-QOS]-podUID.slice with underscores in the uid.
// Both may have a parent that the kubelet is configured with; "" for those.
//
// An agent in a cgroup namespace, as in a pod with cgroups of version 2, sees paths that begin with
// the way from its own cgroup, such as /../../podUID/CONTAINER.
func podOf(cgroup string) string {
	elements := strings.Split(strings.TrimPrefix(cgroup, "/"), "/")
	if elements[0] == ".." {
		for elements[0] == ".." && len(elements) > 1 {
			elements = elements[1:]
		}
		elements = belowKubepods(elements)
	}
	top, systemd := elements[0], false
	if name, ok := strings.CutSuffix(top, ".slice"); ok {
		top, systemd = name, true
	}
	if top != "kubepods" {
		return ""
	}
	for _, e := range elements[1:min(len(elements), 3)] {
		if systemd {
			name, ok := strings.CutSuffix(e, ".slice")
			if !ok {
				return ""
			}
			if _, uid, ok := strings.Cut(name, "-pod"); ok {
				return strings.ReplaceAll(uid, "_", "-")
			}
		} else if uid, ok := strings.CutPrefix(e, "pod"); ok {
			return uid
		}
	}
	return ""
}

// belowKubepods adds the cgroups above the first one that is not a common parent of a pod and the
// agent, which is also in a pod.
func belowKubepods(elements []string) []string {
	switch first := elements[0]; {
	case first == "besteffort" || first == "burstable" || strings.HasPrefix(first, "pod"):
		return append([]string{"kubepods"}, elements...)
	case strings.HasPrefix(first, "kubepods-"):
		return append([]string{"kubepods.slice"}, elements...)
	}
	return elements
}

// pinFor returns the narrowest label that pins a Dataplane to a local peer, for a message.
func pinFor(peer *Peer) string {
	out := fmt.Sprintf("%s: %q", LabelUser, fmt.Sprint(peer.UID))
	if u := unitOf(peer.Cgroup); strings.HasSuffix(u, ".service") && !strings.HasPrefix(u, "user@") {
		out += fmt.Sprintf(" (or, for this unit only, %s: %s)", LabelUnit, clip.Value(u))
	}
	if pod := peer.PodUID(); pod != "" {
		out += fmt.Sprintf(" (or, for this pod only, %s: %s)", LabelPod, clip.Value(pod))
	}
	return out
}
