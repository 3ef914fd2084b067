package inject

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/nearside-mesh/nearside/agent/compute/bootstrap"
)

// probePlan is how the kubelet reaches the application for probes.
type probePlan struct {
	ports  string // that connections of the node reach around the proxy
	routes []bootstrap.ProbeRoute
	edits  Edits
	notes  []Note
}

// planProbes sends the probes around the proxy, or the HTTP probes through it.
func planProbes(pod Pod, s *settings) probePlan {
	var out probePlan
	around := map[int]bool{}
	for _, l := range lists(pod) {
		for i, c := range l.containers {
			if l.name == "initContainers" && c.RestartPolicy != "Always" {
				continue // it has no probes
			}
			for _, p := range targets(l.path(i), c) {
				port, ok := resolve(p.target.Port, c)
				switch {
				case p.target.Host != "":
					continue // not the pod
				case !ok:
					out.notes = append(out.notes, Note{Field: p.path.At("port").String(), Warning: true,
						Text: fmt.Sprintf("%s is not a port of the container, so the probe fails", p.target.Port)})
					continue
				case s.virtualPort > 0 && out.forward(p, port, s.virtualPort):
					around[int(s.virtualPort)] = true
					continue
				case s.virtualPort > 0:
					out.notes = append(out.notes, Note{Field: p.path.String(),
						Text: "only HTTP probes with a simple path go through the proxy; this one goes around it"})
				}
				around[port] = true
			}
		}
	}
	var ports []string
	for _, port := range slices.Sorted(maps.Keys(around)) {
		ports = append(ports, strconv.Itoa(port))
	}
	out.ports = strings.Join(ports, ",")
	return out
}

// target is where the kubelet connects to.
type target struct {
	path   Path
	kind   string // httpGet, tcpSocket, or grpc
	probe  bool   // not a lifecycle hook
	target ProbeTarget
}

// targets returns the connections of the kubelet to a container.
func targets(at Path, c Container) (out []target) {
	add := func(at Path, probe bool, http, tcp, grpc *ProbeTarget) {
		for _, t := range []struct {
			kind string
			to   *ProbeTarget
		}{{"httpGet", http}, {"tcpSocket", tcp}, {"grpc", grpc}} {
			if t.to != nil {
				out = append(out, target{at.At(t.kind), t.kind, probe, *t.to})
			}
		}
	}
	for _, p := range []struct {
		name  string
		probe *Probe
	}{{"startupProbe", c.StartupProbe}, {"livenessProbe", c.LivenessProbe}, {"readinessProbe", c.ReadinessProbe}} {
		if p.probe != nil {
			add(at.At(p.name), true, p.probe.HTTPGet, p.probe.TCPSocket, p.probe.GRPC)
		}
	}
	var hooks struct{ PostStart, PreStop Probe }
	if json.Unmarshal(c.Lifecycle, &hooks) == nil {
		add(at.At("lifecycle", "postStart"), false, hooks.PostStart.HTTPGet, nil, nil)
		add(at.At("lifecycle", "preStop"), false, hooks.PreStop.HTTPGet, nil, nil)
	}
	return out
}

// resolve returns the number of a port of a probe.
func resolve(port json.RawMessage, c Container) (int, bool) {
	var number int
	if json.Unmarshal(port, &number) == nil {
		return number, number > 0 && number < 1<<16
	}
	var name string
	if json.Unmarshal(port, &name) != nil {
		return 0, false
	}
	if n, err := strconv.ParseUint(name, 10, 16); err == nil { // a quoted number
		return int(n), n > 0
	}
	for _, p := range c.Ports {
		if p.Name == name && name != "" {
			return p.ContainerPort, true
		}
	}
	return 0, false
}

// forward lets the proxy forward a probe, and reports whether it can.
func (p *probePlan) forward(t target, port int, virtual uint16) bool {
	if !t.probe || t.kind != "httpGet" || t.target.Scheme != "" && t.target.Scheme != "HTTP" {
		return false
	}
	path, query, found := strings.Cut(t.target.Path, "?")
	if !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	if strings.Trim(path, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/-._~") != "" ||
		strings.Contains(path, "//") || strings.Contains(path, "/.") {
		return false // Envoy may normalize the path
	}
	r := bootstrap.ProbeRoute{Path: fmt.Sprintf("/%d%s", port, path), Workload: uint16(port), WorkloadPath: path}
	if !slices.Contains(p.routes, r) {
		p.routes = append(p.routes, r)
	}
	to := r.Path
	if found {
		to += "?" + query
	}
	op := Replace
	if t.target.Path == "" {
		op = Add
	}
	p.edits = append(p.edits, Edit{t.path.At("path"), op, to}, Edit{t.path.At("port"), Replace, int(virtual)})
	return true
}

// lifecyclePlan delays the end of the application.
type lifecyclePlan struct {
	edits Edits
	notes []Note
}

// planLifecycles lets application containers run until their clients know that the pod ends. A hook
// of the application takes precedence.
func planLifecycles(pod Pod, s *settings) (out lifecyclePlan) {
	if s.appDrain <= 0 {
		return out
	}
	for i, c := range pod.Spec.Containers {
		at := Path{"spec", "containers"}.At(i, "lifecycle")
		var hooks map[string]json.RawMessage
		switch {
		case len(c.Lifecycle) == 0:
			out.edits = append(out.edits, Edit{at, Add, sleepFor(s.appDrain)})
		case json.Unmarshal(c.Lifecycle, &hooks) != nil || hooks == nil:
			out.notes = append(out.notes, Note{Field: at.String(), Warning: true,
				Text: "it is null, so the container gets no preStop hook, and requests may fail when the pod ends; " +
					"remove the field"})
		case len(hooks["preStop"]) == 0:
			out.edits = append(out.edits, Edit{at.At("preStop"), Add, sleepFor(s.appDrain).PreStop})
		}
	}
	return out
}
