package accesslog

import (
	"fmt"
	"slices"
	"strings"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/compute/substitution"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// layer is the kind of traffic that an entry describes.
type layer int

const (
	connections layer = iota
	requests
	unmatched // connections without a matching filter chain
	closed    // connections that a closed passthrough closes
	layers
)

// plan is the converted conf of one rule for a part of a config.
type plan struct {
	owner   resource.Key // policy that receives warnings
	loggers []logger
	filters [layers][]*accesslogv3.AccessLogFilter
	// connectionWarning describes a setting without effect on connections, or "".
	connectionWarning string
}

// logger writes the entries of a plan to one sink.
type logger struct {
	sink      sink
	path      string // of the file or FIFO
	templates [layers]template
	records   [layers]record // for sinkOTel; the templates then hold their texts
	// named reports whether a template contains the destination. The config of other outbound
	// templates is cached in packed.
	named  [layers]bool
	packed [layers]*anypb.Any
	pipe   *draft.Pipe // pipe to add; nil if Envoy writes the file, or if already added
}

// newPlan returns a plan for sinks. It drops invalid sinks.
func (w *writer) newPlan(owner resource.Key, sinks []sink, f *Filtering) *plan {
	p := &plan{owner: owner}
	for _, s := range sinks {
		if l, ok := w.newLogger(owner, s); ok {
			p.loggers = append(p.loggers, l)
			// Only the format of connections can contain an operator for requests.
			if op := l.templates[connections].aboutRequests(); op != "" && p.connectionWarning == "" {
				p.connectionWarning = "the format contains " + op + ", which has no value for TCP connections"
			}
		}
	}
	for l := range layers {
		p.filters[l] = f.filters(l == requests)
	}
	if f.aboutRequests() {
		p.connectionWarning = "filtering by headers or gRPC status has no effect on TCP connections, which are all logged"
	}
	return p
}

func (w *writer) newLogger(owner resource.Key, s sink) (logger, bool) {
	l := logger{sink: s, path: s.path}
	if s.kind == sinkFile && !w.ownFile(owner, &s) {
		return l, false
	}
	switch {
	case s.format != nil:
		t := s.format.template()
		l.templates = [layers]template{t, t, t, t}
	case s.text != "":
		segs, err := substitution.ParseFormat(s.text, placeholders[:]...)
		if err != nil {
			w.c.Host.Warn(owner, "the backend %[2]q in logging of mesh %[1]s has no effect: its format is invalid: %[3]v",
				w.c.View.Name, s.mesh, err)
			return l, false
		}
		t := template{text: segs}
		l.templates = [layers]template{t, t, t, t}
	default:
		for i, text := range [layers]string{
			connections: defaultTCP,
			requests:    defaultHTTP,
			unmatched:   defaultUnmatched,
			closed:      defaultClosed,
		} {
			l.templates[i].text, _ = substitution.ParseFormat(text, placeholders[:]...) // constant; validated by TestDefaults
		}
	}
	if s.kind == sinkTCP || s.rotated(w.c.Paths) {
		l.pipe = linePipe(w.c, owner, s)
		l.path = l.pipe.Path
	}
	if s.kind == sinkOTel {
		pipe := w.collector(owner, s.name, s.otlp)
		if pipe.Path != "" {
			l.pipe = &pipe
		} else if s.otlp.HTTP {
			w.c.Host.Warn(owner, "the OpenTelemetry backend was dropped, because Envoy cannot send logs by HTTP and the path "+
				"of the agent's socket is too long; use a shorter paths.run, or protocol grpc")
			return l, false
		}
		for i := range l.records {
			l.records[i] = s.otel.readRecord(l.templates[i].text)
			l.records[i].cluster, l.records[i].route, l.records[i].newer = pipe.Cluster, pipe.Route, w.c.Host.EnvoyFrom(1, 37)
			l.templates[i] = l.records[i].template()
		}
	}
	for i := range l.templates {
		l.named[i] = l.templates[i].uses(ofDestination)
		if op := l.templates[i].forgeable(); op != "" && s.kind != sinkOTel {
			w.c.Host.Warn(owner, "the format contains %s, whose value may contain line breaks that a client sends as %%0A, so "+
				"clients can forge lines of this log; use a JSON format, which escapes them", op)
		}
	}
	return l, true
}

// packedLog holds the messages of one packed logger, so that one allocation suffices.
type packedLog struct {
	message accesslogv3.AccessLog
	config  accesslogv3.AccessLog_TypedConfig
	packed  anypb.Any
}

// entry returns the config of the logger.
func (l *logger) entry(at layer, v *values, scratch *[]byte) (*accesslogv3.AccessLog, error) {
	p := &packedLog{}
	p.message.Name, p.message.ConfigType = nameFile, &p.config
	if l.sink.kind == sinkOTel {
		p.message.Name = nameOTel
	}
	if p.config.TypedConfig = l.packed[at]; p.config.TypedConfig != nil {
		return &p.message, nil
	}
	if l.sink.kind == sinkOTel {
		packed, err := l.records[at].pack(v)
		if err != nil {
			return nil, err
		}
		p.config.TypedConfig = packed
	} else {
		p.packed.TypeUrl, p.packed.Value = urlFile, fileLog(l.path, l.sink.prefix, &l.templates[at], v, scratch)
		p.config.TypedConfig = &p.packed
	}
	if v.direction == DirectionOutbound && !l.named[at] {
		l.packed[at] = p.config.TypedConfig
	}
	return &p.message, nil
}

// log adds the loggers of a plan to a chain, restricted by further conditions.
func (w *writer) log(ch *draft.Chain, p *plan, v *values, conditions ...*accesslogv3.AccessLogFilter) {
	if p == nil || len(p.loggers) == 0 {
		return
	}
	var at layer
	var list *[]*accesslogv3.AccessLog
	switch {
	case ch.HTTP != nil:
		at, list = requests, &ch.HTTP.Message.AccessLog
	case ch.TCP != nil:
		at, list = connections, &ch.TCP.AccessLog
		if w.closed[ch.TCP.GetCluster()] {
			at = closed
		}
	default:
		return
	}
	w.add(list, at, p, v, conditions...)
}

// add adds the loggers of a plan to a list.
func (w *writer) add(list *[]*accesslogv3.AccessLog, at layer, p *plan, v *values,
	conditions ...*accesslogv3.AccessLogFilter) {
	if at != requests && p.connectionWarning != "" {
		w.c.Host.Warn(p.owner, "%s", p.connectionWarning)
		p.connectionWarning = ""
	}
	var filter *accesslogv3.AccessLogFilter
	if len(conditions)+len(p.filters[at]) > 0 {
		filter = all(slices.Concat(conditions, p.filters[at])...)
	}
	*list = slices.Grow(*list, len(p.loggers))
	for i := range p.loggers {
		e, err := p.loggers[i].entry(at, v, &w.scratch)
		if err != nil {
			w.c.Host.Warn(p.owner, "a backend was dropped because it cannot be encoded: %v", err)
			continue
		}
		e.Filter = filter
		*list = append(*list, e)
		if l := &p.loggers[i]; l.pipe != nil {
			w.d.Pipes = append(w.d.Pipes, *l.pipe)
			l.pipe = nil // add it once
		}
	}
}

// resolver resolves the backends of rules.
type resolver struct {
	c *policy.Context
	// warn reports dropped backends; nil to ignore them.
	warn func(k resource.Key, format string, args ...any)
}

func (r *resolver) warnf(k resource.Key, format string, args ...any) {
	if r.warn != nil {
		r.warn(k, format, args...)
	}
}

// sinks returns the sinks of a rule. It drops references that cannot be resolved. list is the
// policy's list that contains the rule's items.
func (r *resolver) sinks(rule *policy.Rule, list string) []sink {
	conf, ok := rule.Conf.(*Conf)
	if !ok || conf.Backends == nil || len(rule.Origins) == 0 {
		return nil
	}
	// A later list overrides earlier ones, and every item has one.
	from := rule.Origins[len(rule.Origins)-1]
	out := make([]sink, 0, len(*conf.Backends))
	for i := range *conf.Backends {
		b := &(*conf.Backends)[i]
		s, reason := r.resolve(from.Policy.Key, b)
		if reason != "" {
			if spec, ok := from.Policy.Spec.(*resource.Policy); ok && list == "from" {
				list = spec.InboundField()
			}
			r.warnf(from.Policy.Key, "%s[%d].default.backends[%d] was dropped: %s", list, from.Item, i, reason)
			continue
		}
		out = append(out, s)
	}
	return out
}

// resolve returns the sink of a backend, or the reason why it has none. owner is its policy.
func (r *resolver) resolve(owner resource.Key, b *Backend) (s sink, reason string) {
	if k, _ := b.kind(); k == reference {
		s, reason = r.refer(b)
	} else {
		s = b.sink()
	}
	if s.kind == sinkOTel && reason == "" {
		s.otlp, reason = toolkit.ResolveOTel(r.c, s.otel.Endpoint, s.otel.BackendRef, func(format string, args ...any) {
			r.warnf(owner, format, args...)
		})
	}
	return s, reason
}

// refer resolves a reference, or returns the reason why it cannot be resolved.
func (r *resolver) refer(b *Backend) (sink, string) {
	name, kinds := b.Name, []string{kindBackend, kindGlobalBackend}
	if b.Conf != nil {
		name, kinds = b.Conf.Name, []string{b.Conf.Kind}
	}
	var known []string
	for _, k := range kinds {
		list := r.c.Rules.Resources(k)
		found, reason := find(list, name)
		if found != nil || reason != "" {
			if spec, ok := specOf(found); ok {
				return spec.sink(), ""
			}
			return sink{}, reason
		}
		for _, res := range list {
			known = append(known, res.Name)
		}
	}
	where := strings.Join(kinds, " or ")
	if b.Conf == nil {
		if l := r.c.View.Spec.Logging.Backend(name); l != nil {
			return loggingSink(l), ""
		}
		where += ", and no backend of Mesh.logging,"
	}
	reason := fmt.Sprintf("no %s has the name %q", where, name)
	if len(known) > 0 {
		const limit = 5
		more := ""
		if len(known) > limit {
			known, more = known[:limit], ", …"
		}
		reason += fmt.Sprintf(" (known names: %s%s)", strings.Join(known, ", "), more)
	}
	return sink{}, reason
}

func specOf(r *resource.Resource) (*BackendSpec, bool) {
	if r == nil {
		return nil, false
	}
	spec, ok := r.Spec.(*BackendSpec)
	return spec, ok
}

// find returns the resource with a name, which may be the resource's name, its name without the
// namespace, or its spec.name, in this order of precedence. An ambiguous name is an error.
func find(list []*resource.Resource, name string) (*resource.Resource, string) {
	for _, by := range []struct {
		what string
		name func(*resource.Resource) string
	}{
		{"name", func(r *resource.Resource) string { return r.Name }},
		{"name without the namespace", (*resource.Resource).DisplayName},
		{"spec.name", func(r *resource.Resource) string {
			if s, ok := specOf(r); ok {
				return s.Name
			}
			return ""
		}},
	} {
		var found []string
		var last *resource.Resource
		for _, r := range list {
			if by.name(r) == name {
				found, last = append(found, r.Key.String()), r
			}
		}
		switch {
		case len(found) == 1:
			return last, ""
		case len(found) > 1:
			slices.Sort(found)
			return nil, fmt.Sprintf("%q is ambiguous, because it is the %s of %s: use the name of the resource, or "+
				"rename one of them", name, by.what, strings.Join(found, " and "))
		}
	}
	return nil, ""
}

// loggingSink returns the sink of a backend in Mesh.logging.
func loggingSink(b *resource.LoggingBackend) sink {
	s := sink{kind: sinkFile, name: b.Name, text: b.Format, mesh: b.Name}
	if b.Type == resource.LoggingTCP {
		s.kind = sinkTCP
	}
	if b.Conf != nil {
		s.path, s.addr = b.Conf.Path, b.Conf.Address
	}
	return s
}

// legacySink returns the sink of a backend in Mesh.logging for TrafficLog: as in Kuma, lines for a
// collector begin with its address.
func legacySink(b *resource.LoggingBackend) sink {
	s := loggingSink(b)
	if s.kind == sinkTCP {
		s.prefix = s.addr + ";"
	}
	return s
}
