package accesslog

import (
	"slices"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/nearside-mesh/nearside/agent/draft"
	"github.com/nearside-mesh/nearside/agent/envoy/substitution"
	"github.com/nearside-mesh/nearside/agent/kinds/toolkit"
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
	records   [layers]record // of sinkOTel; the templates are then their texts
	// named is true for templates that name the destination. What those of outbounds that do not are is kept in packed.
	named  [layers]bool
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
	case s.format != nil:
		t := s.format.template()
		l.templates = [layers]template{t, t}
	case s.text != "":
		segs, err := substitution.ParseFormat(s.text, placeholders[:]...)
		if err != nil {
			w.c.Host.Warn(owner, "logging of mesh %s, the format of the backend %q: %v: nothing is logged there", w.c.View.Name, s.mesh, err)
			return l, false
		}
		l.templates = [layers]template{{text: segs}, {text: segs}}
	default:
		for i, text := range [layers]string{connections: defaultTCP, requests: defaultHTTP} {
			l.templates[i].text, _ = substitution.ParseFormat(text, placeholders[:]...) // a constant, which TestDefaults reads
		}
	}
	if s.kind == sinkTCP {
		l.path = fifo(w.c, s)
	}
	if s.kind == sinkOTel {
		at, _ := toolkit.ParseCollector(s.otel.Endpoint) // valid
		cluster := w.collectorCluster(at)
		for i := range l.records {
			l.records[i] = s.otel.readRecord(l.templates[i].text)
			l.records[i].cluster = cluster
			l.templates[i] = l.records[i].template()
		}
	}
	for i := range l.templates {
		l.named[i] = l.templates[i].uses(ofDestination)
	}
	return l, true
}

// odd is an operator in the format of connections that is about requests alone, "" for none.
func (l *logger) odd() string {
	return l.templates[connections].aboutRequests()
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
	default:
		return
	}
	if at == connections && p.odd != "" {
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
	}
}
