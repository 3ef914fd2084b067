package logline

import (
	"encoding/json"
	"fmt"
)

// Logger is a file logger of a listener.
type Logger struct {
	Path   string // of the file or FIFO; "" for another type of logger
	Format Format
	// Filtered is true if only some entries are logged.
	Filtered bool
	// Listener is true for the listener's own log of connections without a filter chain.
	Listener bool
	Cluster  string // the cluster of the chain's TCP proxy, or ""
	Chain    int    // index of the filter chain; -1 for the default chain and the listener
}

// The relevant parts of Envoy's resources.
type (
	listener struct {
		AccessLog          []logger `json:"accessLog"`
		FilterChains       []chain  `json:"filterChains"`
		DefaultFilterChain *chain   `json:"defaultFilterChain"`
	}
	chain struct {
		Filters []struct {
			TypedConfig struct {
				Cluster   string   `json:"cluster"`
				AccessLog []logger `json:"accessLog"`
			} `json:"typedConfig"`
		} `json:"filters"`
	}
	logger struct {
		Filter      json.RawMessage `json:"filter"`
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

// Loggers returns the access loggers of a listener, given as JSON: its own first, then those in its
// filter chains.
func Loggers(name string, resource json.RawMessage) ([]Logger, error) {
	var l listener
	if err := json.Unmarshal(resource, &l); err != nil {
		return nil, fmt.Errorf("listener %s: %w", name, err)
	}
	var out []Logger
	add := func(from *logger, more Logger) {
		more.Path, more.Filtered = from.TypedConfig.Path, len(from.Filter) > 0
		more.Format = Format{Text: from.TypedConfig.LogFormat.TextFormatSource.InlineString,
			JSON: from.TypedConfig.LogFormat.JSONFormat}
		out = append(out, more)
	}
	for i := range l.AccessLog {
		add(&l.AccessLog[i], Logger{Listener: true, Chain: -1})
	}
	chains := func(c *chain, at int) {
		for _, f := range c.Filters {
			for i := range f.TypedConfig.AccessLog {
				add(&f.TypedConfig.AccessLog[i], Logger{Cluster: f.TypedConfig.Cluster, Chain: at})
			}
		}
	}
	for i := range l.FilterChains {
		chains(&l.FilterChains[i], i)
	}
	if l.DefaultFilterChain != nil {
		chains(l.DefaultFilterChain, -1)
	}
	return out, nil
}
