package refusals

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/compute/envoy"
	"github.com/nearside-mesh/nearside/agent/compute/logline"
)

// Log is a logger that writes refused connections, among others.
type Log struct {
	Path string // of the file or FIFO; "" for a logger that writes none
	// Reason says why its lines cannot be read, "" where they can.
	Reason string

	closed bool // of a closed passthrough, which takes connections and ends them
	read   *logline.Reader
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
	atTime: "START_TIME", atFlags: "RESPONSE_FLAGS", atDetails: "RESPONSE_CODE_DETAILS",
	atDestination: "DOWNSTREAM_LOCAL_ADDRESS", atServerName: "REQUESTED_SERVER_NAME",
	atNoTLS: "DYNAMIC_METADATA(envoy.filters.listener.tls_inspector:failure_reason)",
}

// passthrough is what the names of the listeners begin with that connections to unknown
// destinations arrive at.
const passthrough = "outbound:passthrough:"

// LogsOf lists the loggers of a proxy's config that write refused connections: those of the
// listeners of the passthrough, and of its chain where that leads nowhere. Resources are by their
// type URL and name.
func LogsOf(config map[string]map[string]json.RawMessage) ([]*Log, error) {
	var out []*Log
	listeners := config[envoy.KindListener.URL()]
	for _, name := range slices.Sorted(maps.Keys(listeners)) {
		if !strings.HasPrefix(name, passthrough) {
			continue
		}
		loggers, err := logline.Loggers(name, listeners[name])
		if err != nil {
			return nil, err
		}
		for i := range loggers {
			if l := &loggers[i]; l.Listener || l.Cluster == name { // what a chain sends elsewhere is not refused
				out = append(out, newLog(l))
			}
		}
	}
	return out, nil
}

func newLog(l *logline.Logger) *Log {
	out := &Log{Path: l.Path, closed: !l.Listener}
	if out.Path == "" {
		out.Reason = "it writes no lines to a file"
		return out
	}
	read, err := logline.NewReader(l.Format, nil, operators...)
	if err == nil {
		err = lacking(read)
	}
	if err != nil {
		out.Reason = err.Error()
	}
	out.read = read
	return out
}

// lacking says what a format lacks for what is asked of it.
func lacking(r *logline.Reader) error {
	for i := range operators {
		if err := r.Hidden(i); err != nil {
			return err
		}
	}
	switch {
	case !r.Has(atDestination):
		return fmt.Errorf("its format has no %%%s%%, so it does not say where connections were to go; add it",
			operators[atDestination])
	case !r.Has(atFlags):
		return fmt.Errorf("its format has no %%%s%%, so it does not say which connections were refused; add it",
			operators[atFlags])
	}
	return nil
}
