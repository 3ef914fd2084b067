package accesslog

import (
	"slices"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/nearside-mesh/nearside/agent/draft"
	"github.com/nearside-mesh/nearside/agent/envoy"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// layer is what an entry is about.
type layer int

const (
	connections layer = iota
	requests
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
	// packed holds the configs that are the same for every outbound, since they do not name the destination.
	packed [layers]*anypb.Any
}

// newPlan makes a plan of sinks. What cannot be written is left out.
func (w *writer) newPlan(owner resource.Key, sinks []sink, f *Filtering) *plan {
	p := &plan{owner: owner}
	for _, s := range sinks {
		if l, ok := w.newLogger(owner, s); ok {
			p.loggers = append(p.loggers, l)
			if l.odd() != "" && p.odd == "" {
				p.odd = "the format has " + l.odd() + ", which prints no value for TCP connections"
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
	case s.kind == sinkOTel:
		w.c.Host.Warn(owner, "the OpenTelemetry logger is not part of this build: nothing is logged to %s", s.otel.Endpoint)
		return l, false
	case s.format != nil:
		t := s.format.template()
		l.templates = [layers]template{t, t}
	case s.text != "":
		segs, err := envoy.ParseFormat(s.text, placeholders[:]...)
		if err != nil {
			w.c.Host.Warn(resource.Key{Kind: "Mesh", Name: w.c.View.Name}, "logging: the format of the backend %q: %v: the backend is left out", s.mesh, err)
			return l, false
		}
		l.templates = [layers]template{{text: segs}, {text: segs}}
	default:
		for i, text := range [layers]string{connections: defaultTCP, requests: defaultHTTP} {
			l.templates[i].text, _ = envoy.ParseFormat(text, placeholders[:]...) // a constant, which TestDefaults reads
		}
	}
	if s.kind == sinkTCP {
		l.path = fifo(w.c, s)
	}
	return l, true
}

// odd is an operator of the format that somebody wrote for requests alone, "" for none.
func (l *logger) odd() string {
	if l.sink.format == nil && l.sink.text == "" {
		return ""
	}
	return l.templates[connections].aboutRequests()
}

// entry makes the config of the logger.
func (l *logger) entry(at layer, v *values) *accesslogv3.AccessLog {
	packed := l.packed[at]
	if packed == nil {
		t := &l.templates[at]
		packed = fileLog(l.path, l.sink.prefix, t, v)
		if v.direction == outboundDirection && !t.uses(ofDestination) {
			l.packed[at] = packed
		}
	}
	return &accesslogv3.AccessLog{Name: nameFile, ConfigType: &accesslogv3.AccessLog_TypedConfig{TypedConfig: packed}}
}

// log adds the loggers of a plan to a chain, for entries that also meet further conditions.
func (w *writer) log(ch *draft.Chain, p *plan, v *values, conditions ...*accesslogv3.AccessLogFilter) {
	if p == nil || len(p.loggers) == 0 {
		return
	}
	at := connections
	if ch.HTTP != nil {
		at = requests
	} else if ch.TCP == nil {
		return
	}
	if at == connections && p.odd != "" {
		w.c.Host.Warn(p.owner, "%s", p.odd)
		p.odd = ""
	}
	filter := all(slices.Concat(conditions, p.filters[at])...)
	entries := make([]*accesslogv3.AccessLog, len(p.loggers))
	for i := range p.loggers {
		entries[i] = p.loggers[i].entry(at, v)
		entries[i].Filter = filter
	}
	if at == requests {
		ch.HTTP.Message.AccessLog = append(ch.HTTP.Message.AccessLog, entries...)
	} else {
		ch.TCP.AccessLog = append(ch.TCP.AccessLog, entries...)
	}
}
