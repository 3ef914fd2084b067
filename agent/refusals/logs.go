package refusals

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/clip"
	"github.com/nearside-mesh/nearside/agent/envoy"
	"github.com/nearside-mesh/nearside/agent/envoy/substitution"
)

// Log is a logger that writes refused connections, among others.
type Log struct {
	Path string // of the file or FIFO; "" for a logger that writes none
	// Reason says why its lines cannot be read, "" where they can.
	Reason string

	closed bool // of a closed passthrough, which takes connections and ends them
	read   reader
}

// reader returns the values of the operators that are asked for, false for a line of another format.
type reader interface {
	read(line []byte) ([]string, bool)
}

// The operators that are asked for, by their index.
const (
	atTime = iota
	atFlags
	atDetails
	atDestination
	atServerName
	atNoTLS
)

var operators = []string{
	atTime: "START_TIME", atFlags: "RESPONSE_FLAGS", atDetails: "RESPONSE_CODE_DETAILS", atDestination: "DOWNSTREAM_LOCAL_ADDRESS",
	atServerName: "REQUESTED_SERVER_NAME", atNoTLS: "DYNAMIC_METADATA(envoy.filters.listener.tls_inspector:failure_reason)",
}

// passthrough is what the names of the listeners begin with that connections to unknown destinations arrive at.
const passthrough = "outbound:passthrough:"

// The parts of Envoy's resources that are looked at.
type (
	listener struct {
		AccessLog    []logger `json:"accessLog"`
		FilterChains []struct {
			Filters []struct {
				TypedConfig struct {
					Cluster   string   `json:"cluster"`
					AccessLog []logger `json:"accessLog"`
				} `json:"typedConfig"`
			} `json:"filters"`
		} `json:"filterChains"`
	}
	logger struct {
		TypedConfig struct {
			Path      string `json:"path"`
			LogFormat struct {
				TextFormatSource struct {
					InlineString string `json:"inlineString"`
				} `json:"textFormatSource"`
				JSONFormat map[string]any `json:"jsonFormat"`
			} `json:"logFormat"`
		} `json:"typedConfig"`
	}
)

// LogsOf lists the loggers of a proxy's config that write refused connections: those of the listeners of the passthrough,
// and of its chain where that leads nowhere. Resources are by their type URL and name.
func LogsOf(config map[string]map[string]json.RawMessage) ([]*Log, error) {
	var out []*Log
	listeners := config[envoy.KindListener.URL()]
	for _, name := range slices.Sorted(maps.Keys(listeners)) {
		if !strings.HasPrefix(name, passthrough) {
			continue
		}
		var l listener
		if err := json.Unmarshal(listeners[name], &l); err != nil {
			return nil, fmt.Errorf("listener %s: %w", name, err)
		}
		for i := range l.AccessLog {
			out = append(out, l.AccessLog[i].log(false))
		}
		for _, chain := range l.FilterChains {
			for _, f := range chain.Filters {
				if f.TypedConfig.Cluster != name {
					continue
				}
				for i := range f.TypedConfig.AccessLog {
					out = append(out, f.TypedConfig.AccessLog[i].log(true))
				}
			}
		}
	}
	return out, nil
}

func (l *logger) log(closed bool) *Log {
	out := &Log{Path: l.TypedConfig.Path, closed: closed}
	if out.Path == "" {
		out.Reason = "it writes no lines to a file"
		return out
	}
	fields := map[string]string{}
	var err error
	if m := l.TypedConfig.LogFormat.JSONFormat; m != nil {
		for k, v := range m {
			if s, ok := v.(string); ok {
				fields[k] = s
			}
		}
		out.read, err = newJSONLines(fields)
	} else {
		out.read, err = newTextLines(l.TypedConfig.LogFormat.TextFormatSource.InlineString)
	}
	if err != nil {
		out.Reason = err.Error()
	}
	return out
}

// lacking says what a format lacks for what is asked of it.
func lacking(has func(i int) bool) error {
	switch {
	case !has(atDestination):
		return fmt.Errorf("its format has no %%%s%%, so it does not say where connections were to go; add it", operators[atDestination])
	case !has(atFlags):
		return fmt.Errorf("its format has no %%%s%%, so it does not say which connections were refused; add it", operators[atFlags])
	}
	return nil
}

type textLines struct{ *substitution.Lines }

func newTextLines(format string) (reader, error) {
	segs, err := substitution.ParseFormat(strings.TrimSuffix(format, "\n"))
	if err != nil {
		return nil, err
	}
	l, err := substitution.NewLines(segs, operators...)
	if err != nil {
		return nil, err
	}
	return textLines{l}, lacking(l.Has)
}

func (l textLines) read(line []byte) ([]string, bool) { return l.Read(string(line)) }

// jsonLines reads the fields of lines that are JSON objects.
type jsonLines struct {
	fields map[string]*substitution.Lines
}

func newJSONLines(formats map[string]string) (reader, error) {
	out := jsonLines{map[string]*substitution.Lines{}}
	for _, key := range slices.Sorted(maps.Keys(formats)) {
		segs, err := substitution.ParseFormat(formats[key])
		if err != nil {
			return nil, fmt.Errorf("field %q: %w", clip.Value(key), err)
		}
		constant := !slices.ContainsFunc(segs, func(s substitution.Segment) bool { return s.Operator != "" })
		asked := slices.ContainsFunc(segs, func(s substitution.Segment) bool { return slices.Contains(operators, s.Name()) })
		if !constant && !asked {
			continue
		}
		if out.fields[key], err = substitution.NewLines(segs, operators...); err != nil {
			return nil, fmt.Errorf("field %q: %w", clip.Value(key), err)
		}
	}
	return out, lacking(func(i int) bool {
		for _, l := range out.fields {
			if l.Has(i) {
				return true
			}
		}
		return false
	})
}

func (l jsonLines) read(line []byte) ([]string, bool) {
	var fields map[string]any
	if json.Unmarshal(line, &fields) != nil {
		return nil, false
	}
	out := make([]string, len(operators))
	for key, format := range l.fields {
		text := ""
		switch v := fields[key].(type) {
		case string:
			text = v
		case nil: // Envoy leaves out or writes null for what has no value
			continue
		default:
			return nil, false
		}
		values, ok := format.Read(text)
		if !ok {
			return nil, false
		}
		for i := range values {
			if format.Has(i) {
				out[i] = values[i]
			}
		}
	}
	return out, true
}
