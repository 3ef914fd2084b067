package inject

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/strict"
	"github.com/nearside-mesh/nearside/agent/model/redirect"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Annotations of pods that the injection reads.
const (
	sidecarUIDAnnotation        = "kuma.io/sidecar-uid"
	concurrencyAnnotation       = "kuma.io/sidecar-proxy-concurrency"
	logLevelAnnotation          = "kuma.io/envoy-log-level"
	componentLogLevelAnnotation = "kuma.io/envoy-component-log-level"
	envVarsAnnotation           = "kuma.io/sidecar-env-vars"
	drainTimeAnnotation         = "kuma.io/sidecar-drain-time"
	virtualProbesAnnotation     = "kuma.io/virtual-probes"
	virtualProbesPortAnnotation = "kuma.io/virtual-probes-port"
	appDrainTimeAnnotation      = "nearside.io/app-drain-time"
	resourcesAnnotation         = "nearside.io/sidecar-resources"
	gatewayAnnotation           = "kuma.io/gateway"
)

// effects lists the annotations of Kuma and nearside on pods. The value is "" if the injection, the
// watcher, or the agent applies the annotation. Otherwise it says why the annotation has no effect,
// after the values that ask for what happens anyway.
var effects = map[string]effect{
	InjectionKey: {}, MeshKey: {}, InjectedAnnotation: {}, InjectionAnnotation: {},
	sidecarUIDAnnotation: {}, concurrencyAnnotation: {}, logLevelAnnotation: {}, componentLogLevelAnnotation: {},
	envVarsAnnotation: {}, drainTimeAnnotation: {}, virtualProbesAnnotation: {}, virtualProbesPortAnnotation: {},
	appDrainTimeAnnotation: {}, resourcesAnnotation: {}, gatewayAnnotation: {},

	resource.AnnotationReachableBackends: {}, resource.AnnotationReachableServices: {}, resource.AnnotationHTTPProbes: {},
	"kuma.io/direct-access-services": {}, "kuma.io/ignore": {},

	"kuma.io/wait-for-dataplane-ready": {anyway: "true,enabled",
		reason: "the application always starts after its proxy has its config"},
	"kuma.io/application-probe-proxy-port": {anyway: "0", reason: "probes go around the proxy; set " +
		virtualProbesAnnotation + ": enabled to send HTTP probes through it"},
	"kuma.io/service-account-token-volume": {
		reason: "the sidecar needs no token: the agent knows the pod by its volume, and none is mounted into it"},
	"kuma.io/container-patches": {reason: "ContainerPatches are not applied; use " + resourcesAnnotation +
		" and the other annotations, or change the injected manifest with a patch of kustomize"},
	"kuma.io/init-first": {anyway: "true", reason: "the sidecar starts before all init containers"},
	"kuma.io/envoy-admin-port": {
		reason: "the admin interface of the sidecar is the socket " + envoyDir + "/admin.sock, not a port"},
	"kuma.io/xds-transport-protocol-variant": {anyway: "DELTA_GRPC", reason: "the sidecar uses delta xDS"},
	"kuma.io/ingress": {anyway: "disabled,false",
		reason: "run an Envoy with nearside bootstrap --proxy-type ingress"},
	"kuma.io/egress": {anyway: "disabled,false",
		reason: "run an Envoy with nearside bootstrap --proxy-type egress"},
	"kuma.io/builtin-dns-logging": {anyway: "false,disabled", reason: "see nearside dns for what the resolver answers"},
}

type effect struct {
	anyway string // separated by commas
	reason string
}

// check adds faults and notes about the annotations and labels that no setting reads.
func (p *parser) check(pod Pod) {
	reach, faults := resource.ParseReach("metadata.annotations", p.annotations)
	for _, f := range faults {
		p.faults = append(p.faults, fmt.Errorf("%s: %s", f.Field, f.Reason))
	}
	for _, n := range reach.Notes {
		p.notes = append(p.notes, Note{Text: n, Warning: true})
	}
	_, notes, invalid := redirect.Parse(p.annotations)
	for _, f := range invalid {
		p.faultf(f.Name, "%s", f.Reason)
	}
	for _, n := range notes {
		p.notes = append(p.notes, Note{Text: "metadata.annotations" + n, Warning: true})
	}
	known := append(slices.Sorted(maps.Keys(effects)), redirect.Annotations()...)
	switch v := p.annotations[gatewayAnnotation]; v {
	case "", "enabled", "true", "disabled", "false":
	case "builtin":
		p.faultf(gatewayAnnotation, "nearside has no builtin gateways; run a gateway of your choice with the value enabled")
	default:
		p.faultf(gatewayAnnotation, "%s is neither enabled nor disabled", strict.Quote(v))
	}
	for _, key := range slices.Sorted(maps.Keys(p.annotations)) {
		value := p.annotations[key]
		e, listed := effects[key]
		switch {
		case listed && (e.reason == "" || slices.Contains(strings.Split(e.anyway, ","), value)):
		case listed:
			p.note(key, "without effect: "+e.reason)
		case strings.HasSuffix(key, ".service.kuma.io/protocol"), slices.Contains(known, key):
		case strings.HasPrefix(key, "prometheus.metrics.kuma.io/"):
			p.note(key, "without effect: metrics of applications are not forwarded; scrape the port of the application and "+
				"exclude it with "+excludeInboundPorts)
		case ofMesh(key):
			text := "no such annotation is known, so it is without effect"
			if near := strict.Nearest(key, known); near != "" {
				text += "; did you mean " + near + "?"
			}
			p.note(key, text)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(pod.Metadata.Labels)) {
		if ofMesh(key) && key != InjectionKey && key != MeshKey {
			p.notes = append(p.notes, Note{Field: fmt.Sprintf("metadata.labels[%q]", key), Warning: true,
				Text: "without effect: labels of the mesh come from the agent, so that a pod cannot choose its identity"})
		}
	}
}

const excludeInboundPorts = "traffic.kuma.io/exclude-inbound-ports"

// ofMesh reports whether a key belongs to Kuma or nearside.
func ofMesh(key string) bool {
	prefix, _, ok := strings.Cut(key, "/")
	return ok && (prefix == "kuma.io" || strings.HasSuffix(prefix, ".kuma.io") || prefix == "nearside.io" ||
		strings.HasSuffix(prefix, ".nearside.io"))
}
