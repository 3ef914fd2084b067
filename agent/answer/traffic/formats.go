package traffic

import (
	"maps"
	"slices"
	"time"

	"github.com/nearside-mesh/nearside/agent/compute/envoy"
	"github.com/nearside-mesh/nearside/agent/compute/logline"
)

// Formats reads the time and the status code of lines by the formats of the loggers that wrote
// them. A nil *Formats recognizes no line.
type Formats struct {
	families []*logline.Family
}

// Indexes of the operators that are read.
const (
	askTime = iota
	askCode
)

// NewFormats returns a reader for the lines of a file with these formats. The reasons explain, once
// each, why the status code cannot be read from some formats. If clients can forge lines of the
// file, it returns nil with a reason.
func NewFormats(list []logline.Format) (f *Formats, reasons []string) {
	said := map[string]bool{}
	say := func(text string) {
		if !said[text] {
			said[text] = true
			reasons = append(reasons, text)
		}
	}
	for i := range list {
		if op := list[i].Forgeable(); op != "" {
			return nil, []string{"a text format has " + op + ", with which clients can forge lines"}
		}
	}
	families, faults := logline.Families(list, "START_TIME", "RESPONSE_CODE")
	for _, err := range faults {
		if err != nil {
			say(err.Error())
		}
	}
	for _, x := range families {
		if err := x.Hidden(askCode); err != nil {
			say(err.Error())
		}
	}
	return &Formats{families}, reasons
}

// read returns the code and the time of a line. If formats that match the line contradict each
// other, the value is not returned.
func (f *Formats) read(line []byte) (code int, hasCode bool, at time.Time, hasTime bool) {
	if f == nil {
		return
	}
	contradiction, other := false, false
	for _, x := range f.families {
		e, ok := x.Read(line)
		if !ok || len(e.Members) == 0 {
			continue
		}
		if n, ok := codeOf(e.Values[askCode]); ok && x.Has(askCode) {
			contradiction = contradiction || hasCode && n != code
			code, hasCode = n, true
		}
		if t, err := time.Parse(time.RFC3339Nano, e.Values[askTime]); err == nil {
			other = other || hasTime && !t.Equal(at)
			at, hasTime = t, true
		}
	}
	return code, hasCode && !contradiction, at, hasTime && !other
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
