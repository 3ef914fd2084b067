package traffic

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/compute/envoy"
	"github.com/nearside-mesh/nearside/agent/compute/logline"
)

// RefusalLog is a logger that writes refused connections, possibly among others.
type RefusalLog struct {
	Path string // of the file or FIFO; "" if the logger writes to neither
	// Reason says why its lines cannot be read; "" if they can.
	Reason string

	closed bool // logger of a closed passthrough, which accepts connections and closes them
	read   *logline.Reader
}

// Indexes into refusedOperators.
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

// RefusalLogs lists the loggers in a proxy's config that write refused connections: those of
// passthrough listeners, and those of the passthrough filter chain if it has no destination.
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
			if l := &loggers[i]; l.Listener || l.Cluster == name { // connections to other clusters are not refused
				out = append(out, newLog(l))
			}
		}
	}
	return out, nil
}

func newLog(l *logline.Logger) *RefusalLog {
	out := &RefusalLog{Path: l.Path, closed: !l.Listener}
	if out.Path == "" {
		out.Reason = "it does not write to a file"
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

// lacking returns an error if a format lacks a required operator or hides its value.
func lacking(r *logline.Reader) error {
	for i := range refusedOperators {
		if err := r.Hidden(i); err != nil {
			return err
		}
	}
	switch {
	case !r.Has(refusedDestination):
		return fmt.Errorf("its format has no %%%s%%, so the destinations are unknown; add it",
			refusedOperators[refusedDestination])
	case !r.Has(refusedFlags):
		return fmt.Errorf("its format has no %%%s%%, so the refused connections are unknown; add it",
			refusedOperators[refusedFlags])
	}
	return nil
}
