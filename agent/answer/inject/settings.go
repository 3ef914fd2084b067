package inject

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/agent/base/strict"
	"github.com/nearside-mesh/nearside/agent/compute/bootstrap"
)

// Defaults of the options.
const (
	DefaultDrainTime    = 5 * time.Second
	DefaultAppDrainTime = 3 * time.Second
)

// defaultGrace is the termination grace period of pods that set none.
const defaultGrace = 30 * time.Second

// settings is what the labels and annotations of a pod and the options set.
type settings struct {
	mesh          string
	meshElsewhere bool // the pod does not name its mesh
	cluster       string
	image         string
	identity      Identity

	uid                         int64
	concurrency                 uint32
	logLevel, componentLogLevel string
	env                         []envVar
	resources                   resources
	drain, appDrain             time.Duration
	grace                       time.Duration
	virtualPort                 uint16 // probes of the application go through the proxy; 0: around it
}

// parser collects the faults and notes of a pod.
type parser struct {
	annotations map[string]string
	faults      []error
	notes       []Note
}

func annotation(key string) string { return fmt.Sprintf("metadata.annotations[%q]", key) }

func (p *parser) faultf(key, format string, args ...any) {
	p.faults = append(p.faults, fmt.Errorf("%s: %s", annotation(key), fmt.Sprintf(format, args...)))
}

func (p *parser) note(key, text string) {
	p.notes = append(p.notes, Note{Field: annotation(key), Text: text, Warning: true})
}

// parseSettings returns the settings of a pod, and notes about annotations without effect.
func parseSettings(pod Pod, o Options) (*settings, []Note, error) {
	p := &parser{annotations: pod.Metadata.Annotations}
	s := &settings{image: cmp.Or(o.EnvoyImage, DefaultEnvoyImage), identity: cmp.Or(o.Identity, IdentityCSI),
		uid: defaultUID, concurrency: bootstrap.DefaultConcurrency, logLevel: "warning", grace: defaultGrace}
	if s.identity != IdentityCSI && s.identity != IdentityHostPath {
		p.faults = append(p.faults, fmt.Errorf("identity: %q is neither %s nor %s", s.identity, IdentityCSI,
			IdentityHostPath))
	}
	if s.image == "" || strings.ContainsFunc(s.image, func(r rune) bool { return r <= ' ' || r > '~' }) {
		p.faults = append(p.faults, fmt.Errorf("image of Envoy: %q is not the name of an image", s.image))
	}
	s.setMesh(p, pod, o)
	s.cluster = "$(POD_NAME)"
	for _, key := range []string{"app.kubernetes.io/name", "app", "k8s-app"} {
		if v := pod.Metadata.Labels[key]; v != "" {
			s.cluster = literal(v)
			break
		}
	}
	s.cluster += ".$(POD_NAMESPACE)"
	s.setUser(p)
	s.setEnvoy(p)
	s.setResources(p)
	s.setDrain(p, pod, o)
	s.setVirtualProbes(p)
	p.check(pod)
	return s, p.notes, errors.Join(p.faults...)
}

var meshName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// setMesh sets the mesh from the pod, its namespace, or the options. The watcher on the node uses
// the same order.
func (s *settings) setMesh(p *parser, pod Pod, o Options) {
	field := "mesh"
	for i, values := range []map[string]string{pod.Metadata.Labels, pod.Metadata.Annotations,
		pod.NamespaceMetadata.Labels, pod.NamespaceMetadata.Annotations} {
		if s.mesh = values[MeshKey]; s.mesh != "" {
			s.meshElsewhere = i >= 2
			field = []string{"metadata.labels", "metadata.annotations", "the labels of namespace " + pod.Namespace,
				"the annotations of namespace " + pod.Namespace}[i] + fmt.Sprintf("[%q]", MeshKey)
			break
		}
	}
	if s.mesh == "" {
		s.mesh, s.meshElsewhere = cmp.Or(o.Mesh, DefaultMesh), true
	}
	if !meshName.MatchString(s.mesh) {
		p.faults = append(p.faults, fmt.Errorf("%s: %s is not the name of a mesh; use at most 63 lower-case letters, "+
			"digits, and hyphens", field, strict.Quote(s.mesh)))
	}
}

func (s *settings) setUser(p *parser) {
	text, ok := p.annotations[sidecarUIDAnnotation]
	if !ok {
		return
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n <= 0 {
		p.faultf(sidecarUIDAnnotation, "%s is not a user of the sidecar; use a number from 1 to 2147483647",
			strict.Quote(text))
		return
	}
	s.uid = n
}

var (
	logLevels    = []string{"trace", "debug", "info", "warning", "error", "critical", "off"}
	variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

// setEnvoy sets the flags and the environment of the Envoy.
func (s *settings) setEnvoy(p *parser) {
	if text, ok := p.annotations[concurrencyAnnotation]; ok {
		n, err := strconv.ParseUint(text, 10, 10)
		if err != nil {
			p.faultf(concurrencyAnnotation, "%s is not a number of threads; use a number from 0 (all CPUs of the node) to 1023",
				strict.Quote(text))
		}
		s.concurrency = uint32(n)
	}
	if text, ok := p.annotations[logLevelAnnotation]; ok {
		if s.logLevel = text; text == "warn" {
			s.logLevel = "warning"
		} else if !slices.Contains(logLevels, text) {
			p.faultf(logLevelAnnotation, "%s is not a log level of Envoy; use one of %s", strict.Quote(text),
				strings.Join(logLevels, ", "))
		}
	}
	s.componentLogLevel = p.annotations[componentLogLevelAnnotation]
	if s.componentLogLevel != "" {
		for item := range strings.SplitSeq(s.componentLogLevel, ",") {
			name, level, ok := strings.Cut(item, ":")
			if !ok || !variableName.MatchString(name) || !slices.Contains(logLevels, level) {
				p.faultf(componentLogLevelAnnotation, "%s is not COMPONENT:LEVEL; use a list such as upstream:debug,http:info",
					strict.Quote(item))
			}
		}
	}
	used := map[string]bool{"POD_NAME": true, "POD_NAMESPACE": true, "POD_IP": true}
	for item := range strings.SplitSeq(p.annotations[envVarsAnnotation], ";") {
		if strings.TrimSpace(item) == "" {
			continue
		}
		name, value, ok := strings.Cut(item, "=")
		name = strings.TrimSpace(name)
		switch {
		case !ok || !variableName.MatchString(name):
			p.faultf(envVarsAnnotation, "%s is not NAME=VALUE; separate variables by semicolons", strict.Quote(item))
		case used[name]:
			p.faultf(envVarsAnnotation, "%s is set twice, or is a variable that the sidecar needs; remove it",
				strict.Quote(name))
		case strings.HasPrefix(name, "KUMA_"):
			p.note(envVarsAnnotation, fmt.Sprintf("%s is without effect: it configures kuma-dp, which does not run here",
				strict.Quote(name)))
		default:
			used[name] = true
			s.env = append(s.env, envVar{Name: name, Value: value})
		}
	}
}

// setDrain sets how long the kubelet waits before it ends the containers. A time that an annotation
// sets must be shorter than the grace period; a default is adapted to it.
func (s *settings) setDrain(p *parser, pod Pod, o Options) {
	if g := pod.Spec.TerminationGracePeriodSeconds; g != nil {
		s.grace = time.Duration(min(max(*g, 0), 1<<31)) * time.Second
	}
	batch := pod.Kind == "Job" || pod.Kind == "CronJob"
	for _, d := range []struct {
		key string
		to  *time.Duration
		def time.Duration
	}{
		{drainTimeAnnotation, &s.drain, cmp.Or(o.DrainTime, DefaultDrainTime)},
		{appDrainTimeAnnotation, &s.appDrain, cmp.Or(o.AppDrainTime, DefaultAppDrainTime)},
	} {
		text, ok := p.annotations[d.key]
		if !ok {
			if batch { // it has no clients that must learn of its end
				continue
			}
			if *d.to = min(d.def, (s.grace / 2).Truncate(time.Second)); *d.to < d.def {
				p.notes = append(p.notes, Note{Field: "spec.terminationGracePeriodSeconds", Warning: true,
					Text: fmt.Sprintf("%d s are too short for the drain time of %s (%s): it is %s, so requests may fail when the "+
						"pod ends; allow at least %d s", int64(s.grace.Seconds()), d.def, d.key, *d.to, 2*seconds(d.def))})
			}
			continue
		}
		v, err := time.ParseDuration(text)
		switch {
		case err != nil || v < 0:
			p.faultf(d.key, "%s is not a duration; use one such as 5s or 1m, or 0s for none", strict.Quote(text))
		case v >= s.grace && v > 0:
			p.faultf(d.key, "%s must be shorter than spec.terminationGracePeriodSeconds (%d s), after which the kubelet kills "+
				"the containers; raise that field, or shorten the time", v, int64(s.grace.Seconds()))
		}
		*d.to = v
	}
}

// setVirtualProbes sets the port at which the proxy forwards probes of the application.
func (s *settings) setVirtualProbes(p *parser) {
	port := uint16(9000)
	if text, ok := p.annotations[virtualProbesPortAnnotation]; ok {
		n, err := strconv.ParseUint(text, 10, 16)
		if _, used := s.ports()[int(n)]; err != nil || n == 0 || used {
			p.faultf(virtualProbesPortAnnotation, "%s is not a port, or another port of the sidecar; use a number from 1 to "+
				"65535", strict.Quote(text))
		}
		port = uint16(n)
	}
	switch text := p.annotations[virtualProbesAnnotation]; text {
	case "", "disabled", "false":
	case "enabled", "true":
		s.virtualPort = port
	default:
		p.faultf(virtualProbesAnnotation, "%s is neither enabled nor disabled", strict.Quote(text))
	}
}
