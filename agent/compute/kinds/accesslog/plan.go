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

// layer is what an entry is about.
type layer int

const (
	connections layer = iota
	requests
	unmatched // connections that no filter chain takes
	shut      // connections that a closed passthrough takes, and ends
	layers
)

// plan is what one rule writes, made once for a part of a config.
type plan struct {
	owner   resource.Key // who hears of what is wrong
	loggers []logger
	filters [layers][]*accesslogv3.AccessLogFilter
	// odd says what has no effect on connections, "" for nothing.
	odd string
}

// logger writes the entries of a plan to one sink.
type logger struct {
	sink      sink
	path      string // of the file or FIFO
	templates [layers]template
	records   [layers]record // of sinkOTel; the templates are then their texts
	// named is true for templates that name the destination. What those of outbounds that do not are
	// is kept in packed.
	named  [layers]bool
	packed [layers]*anypb.Any
	pipe   *draft.Pipe // that it writes to; nil: Envoy writes the file itself, or the draft has it
}

// newPlan makes a plan of sinks. What cannot be written is dropped.
func (w *writer) newPlan(owner resource.Key, sinks []sink, f *Filtering) *plan {
	p := &plan{owner: owner}
	for _, s := range sinks {
		if l, ok := w.newLogger(owner, s); ok {
			p.loggers = append(p.loggers, l)
			// An operator in the format of connections that is about requests alone.
			if op := l.templates[connections].aboutRequests(); op != "" && p.odd == "" {
				p.odd = "the format has " + op + ", which prints no value for TCP connections"
			}
		}
	}
	for l := range layers {
		p.filters[l] = f.filters(l == requests)
	}
	if f.aboutRequests() {
		p.odd = "filtering by headers or gRPC status has no effect on TCP connections: their entries are kept"
	}
	return p
}

func (w *writer) newLogger(owner resource.Key, s sink) (logger, bool) {
	l := logger{sink: s, path: s.path}
	switch {
	case s.format != nil:
		t := s.format.template()
		l.templates = [layers]template{t, t, t, t}
	case s.text != "":
		segs, err := substitution.ParseFormat(s.text, placeholders[:]...)
		if err != nil {
			w.c.Host.Warn(owner, "logging of mesh %s, the format of the backend %q: %v: nothing is logged there",
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
			shut:        defaultShut,
		} {
			l.templates[i].text, _ = substitution.ParseFormat(text, placeholders[:]...) // a constant, which TestDefaults reads
		}
	}
	if s.kind == sinkTCP || s.rotate != nil {
		l.pipe = linePipe(w.c, owner, s)
		l.path = l.pipe.Path
	}
	if s.kind == sinkOTel {
		at, _ := toolkit.ParseCollector(s.otel.Endpoint) // valid
		pipe := w.collector(owner, s.name, at)
		if pipe.Path != "" {
			l.pipe = &pipe
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
			w.c.Host.Warn(owner, "the format has %s, whose value may hold line breaks that a client sends as %%0A: it can "+
				"forge lines of this log; give a JSON format, which escapes them", op)
		}
	}
	return l, true
}

// packedLog is the messages around one packed logger, allocated together.
type packedLog struct {
	message accesslogv3.AccessLog
	config  accesslogv3.AccessLog_TypedConfig
	packed  anypb.Any
}

// entry makes the config of the logger.
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

// log adds the loggers of a plan to a chain, for entries that also meet further conditions.
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
			at = shut
		}
	default:
		return
	}
	w.add(list, at, p, v, conditions...)
}

// add adds the loggers of a plan to a list.
func (w *writer) add(list *[]*accesslogv3.AccessLog, at layer, p *plan, v *values,
	conditions ...*accesslogv3.AccessLogFilter) {
	if at != requests && p.odd != "" {
		w.c.Host.Warn(p.owner, "%s", p.odd)
		p.odd = ""
	}
	var filter *accesslogv3.AccessLogFilter
	if len(conditions)+len(p.filters[at]) > 0 {
		filter = all(slices.Concat(conditions, p.filters[at])...)
	}
	*list = slices.Grow(*list, len(p.loggers))
	for i := range p.loggers {
		e, err := p.loggers[i].entry(at, v, &w.scratch)
		if err != nil {
			w.c.Host.Warn(p.owner, "%v: nothing is logged there", err)
			continue
		}
		e.Filter = filter
		*list = append(*list, e)
		if l := &p.loggers[i]; l.pipe != nil {
			w.d.Pipes = append(w.d.Pipes, *l.pipe)
			l.pipe = nil // once for a part is enough
		}
	}
}

// resolver finds what the backends of rules write to.
type resolver struct {
	c *policy.Context
	// warn notes what costs a backend; nil where nobody wants to know.
	warn func(k resource.Key, format string, args ...any)
}

func (r *resolver) warnf(k resource.Key, format string, args ...any) {
	if r.warn != nil {
		r.warn(k, format, args...)
	}
}

// sinks returns what a rule writes to. A backend that leads nowhere is dropped. list is the list
// that the items of the rule stand in.
func (r *resolver) sinks(rule *policy.Rule, list string) []sink {
	conf, ok := rule.Conf.(*Conf)
	if !ok || conf.Backends == nil || len(rule.Origins) == 0 {
		return nil
	}
	// A later list replaces the earlier ones, and every item has one.
	from := rule.Origins[len(rule.Origins)-1]
	out := make([]sink, 0, len(*conf.Backends))
	for i := range *conf.Backends {
		b := &(*conf.Backends)[i]
		if k, _ := b.kind(); k != reference {
			out = append(out, b.sink())
			continue
		}
		s, reason := r.refer(b)
		if reason != "" {
			if spec, ok := from.Policy.Spec.(*resource.Policy); ok && list == "from" {
				list = spec.ArrivingField()
			}
			r.warnf(from.Policy.Key, "%s[%d].default.backends[%d]: %s: the backend is left out", list, from.Item, i, reason)
			continue
		}
		out = append(out, s)
	}
	return out
}

// refer follows a reference. It says why where it leads nowhere.
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
	reason := fmt.Sprintf("there is no %s with the name %q", where, name)
	if len(known) > 0 {
		const most = 5
		more := ""
		if len(known) > most {
			known, more = known[:most], ", …"
		}
		reason += fmt.Sprintf(" (known here: %s%s)", strings.Join(known, ", "), more)
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

// find returns the resource with a name: that of the resource, else its name without the namespace,
// else its spec.name. Of several with one name none is meant, and the reason says so.
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
			return nil, fmt.Sprintf("%q is ambiguous, since it is the %s of %s: refer to one of them by the name of the "+
				"resource, or rename it", name, by.what, strings.Join(found, " and "))
		}
	}
	return nil, ""
}

// loggingSink is a backend of Mesh.logging.
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

// legacySink is a backend of Mesh.logging as TrafficLog uses it: the lines for a collector carry
// its address, as those of the reference do.
func legacySink(b *resource.LoggingBackend) sink {
	s := loggingSink(b)
	if s.kind == sinkTCP {
		s.prefix = s.addr + ";"
	}
	return s
}
