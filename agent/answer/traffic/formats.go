package traffic

import (
	"maps"
	"slices"
	"time"

	"github.com/nearside-mesh/nearside/agent/compute/envoy"
	"github.com/nearside-mesh/nearside/agent/compute/logfields"
	"github.com/nearside-mesh/nearside/agent/compute/logline"
)

// Formats has the formats of the loggers that wrote a file. A nil *Formats has those of policies
// without a format.
type Formats struct {
	loggers   []logline.Format
	templates []logline.Format
}

// Indexes of the fields that a filter reads, followed by those of its conditions.
const (
	askTime = iota
	askCode
	askWhere
)

// NewFormats returns the formats of a file, from the loggers that write it, and from the templates
// of policies. If clients can forge lines of the file, it returns nil with a reason.
func NewFormats(loggers, templates []logline.Format) (f *Formats, reason string) {
	for i := range loggers {
		if op := loggers[i].Forgeable(); op != "" {
			return nil, "a text format has " + op + ", with which clients can forge lines"
		}
	}
	return &Formats{loggers, templates}, ""
}

// Reasons explains, once each, why the fields of a filter cannot be read from lines of some
// formats.
func (f *Formats) Reasons(filter *Filter) []string { return f.compile(filter).Reasons }

// compile returns the formats for the fields that a filter reads, followed by more fields.
func (f *Formats) compile(filter *Filter, more ...logfields.Field) *logfields.Formats {
	at, _ := logfields.Named(logfields.Time)
	code, _ := logfields.Named(logfields.Status, filter.Fields...)
	fields := []logfields.Field{askTime: at, askCode: code}
	if filter.Codes == nil {
		fields[askCode] = logfields.Field{}
	}
	if filter.Since.IsZero() {
		fields[askTime] = logfields.Field{}
	}
	for _, c := range filter.Where {
		fields = append(fields, c.Field)
	}
	o := logfields.Options{Templates: logline.Defaults(), Placeholders: logline.Placeholders(),
		Fields: append(fields, more...)}
	if f != nil {
		o.Templates, o.Formats = append(o.Templates, f.templates...), f.loggers
	}
	return logfields.New(o)
}

func parseTime(v *logfields.Value) (time.Time, bool) {
	if v.State != logfields.Known {
		return time.Time{}, false
	}
	at, err := time.Parse(time.RFC3339Nano, string(v.Text))
	return at, err == nil
}

func parseCode(v *logfields.Value) (int, bool) {
	if v.State != logfields.Known {
		return 0, false
	}
	return codeOf(string(v.Text))
}

// FormatList maps the path of a file to the formats of its lines.
type FormatList map[string][]logline.Format

// Add adds the formats of the loggers in a config that write to the given files or FIFOs. files
// maps the path of a logger to the file that contains its lines.
func (l FormatList) Add(config Config, files map[string]string) error {
	listeners := config[envoy.KindListener.URL()]
	for _, name := range slices.Sorted(maps.Keys(listeners)) {
		loggers, err := logline.Loggers(name, listeners[name])
		if err != nil {
			return err
		}
		for i := range loggers {
			if path, ok := files[loggers[i].Path]; ok {
				l[path] = append(l[path], loggers[i].Format)
			}
		}
	}
	return nil
}
