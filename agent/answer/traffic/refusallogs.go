package traffic

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/compute/envoy"
	"github.com/nearside-mesh/nearside/agent/compute/logline"
)

// RefusalLog is a logger that writes refused connections, among others.
type RefusalLog struct {
	Path string // of the file or FIFO; "" for a logger that writes none
	// Reason says why its lines cannot be read, "" where they can.
	Reason string

	closed bool // of a closed passthrough, which takes connections and ends them
	read   *logline.Reader
}

// The refusedOperators that are asked for, by their index.
const (
	refusedAt = iota
	refusedFlags
	refusedDetails
	refusedDestination
	refusedServerName
	refusedNoTLS
)

var refusedOperators = []string{
	refusedAt: "START_TIME", refusedFlags: "RESPONSE_FLAGS", refusedDetails: "RESPONSE_CODE_DETAILS",
	refusedDestination: "DOWNSTREAM_LOCAL_ADDRESS", refusedServerName: "REQUESTED_SERVER_NAME",
	refusedNoTLS: "DYNAMIC_METADATA(envoy.filters.listener.tls_inspector:failure_reason)",
}

// RefusalLogs lists the loggers of a proxy's config that write refused connections: those of the
// listeners of the passthrough, and of its chain where that leads nowhere. Resources are by their
// type URL and name.
func RefusalLogs(config Config) ([]*RefusalLog, error) {
	var out []*RefusalLog
	listeners := config[envoy.KindListener.URL()]
	for _, name := range slices.Sorted(maps.Keys(listeners)) {
		if !strings.HasPrefix(name, prefixPassthrough) {
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

func newLog(l *logline.Logger) *RefusalLog {
	out := &RefusalLog{Path: l.Path, closed: !l.Listener}
	if out.Path == "" {
		out.Reason = "it writes no lines to a file"
		return out
	}
	read, err := logline.NewReader(l.Format, nil, refusedOperators...)
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
	for i := range refusedOperators {
		if err := r.Hidden(i); err != nil {
			return err
		}
	}
	switch {
	case !r.Has(refusedDestination):
		return fmt.Errorf("its format has no %%%s%%, so it does not say where connections were to go; add it",
			refusedOperators[refusedDestination])
	case !r.Has(refusedFlags):
		return fmt.Errorf("its format has no %%%s%%, so it does not say which connections were refused; add it",
			refusedOperators[refusedFlags])
	}
	return nil
}
