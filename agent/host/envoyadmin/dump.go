package envoyadmin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Limits of queries for users. An Envoy with 1,000 services has a config dump of about 10 MiB. To
// read one takes several times its size, and the program that answers may be hostile.
var (
	longDump = bounds{10 * time.Second, 32 << 20}
	longText = bounds{10 * time.Second, 16 << 20}
)

// ConfigDump returns Envoy's config as JSON of envoy.admin.v3.ConfigDump, optionally with
// endpoints. Envoy hides private keys in it, but no other secrets.
func (e Envoy) ConfigDump(ctx context.Context, endpoints bool) ([]byte, error) {
	path := "/config_dump"
	if endpoints {
		path += "?include_eds"
	}
	return e.ask(ctx, "GET", path, longDump)
}

// Stats returns Envoy's statistics, one per line.
func (e Envoy) Stats(ctx context.Context) ([]byte, error) {
	return e.ask(ctx, "GET", "/stats", longText)
}

// Clusters returns the clusters with the state of their endpoints as text.
func (e Envoy) Clusters(ctx context.Context) ([]byte, error) {
	return e.ask(ctx, "GET", "/clusters", longText)
}

// Levels sets the levels of loggers and returns the levels of all loggers. In set, the name ""
// means all loggers.
func (e Envoy) Levels(ctx context.Context, set map[string]string) (map[string]string, error) {
	var queries []string
	if level, all := set[""]; all {
		queries = append(queries, "?level="+url.QueryEscape(level))
	}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		if name != "" {
			queries = append(queries, "?"+url.QueryEscape(name)+"="+url.QueryEscape(set[name]))
		}
	}
	if len(queries) == 0 {
		queries = append(queries, "")
	}
	var body []byte
	for _, q := range queries {
		var err error
		if body, err = e.ask(ctx, "POST", "/logging"+q, short); err != nil {
			return nil, err
		}
	}
	return parseLevels(string(body))
}

// parseLevels parses lines "  name: level" after a heading.
func parseLevels(body string) (map[string]string, error) {
	out := map[string]string{}
	for line := range strings.Lines(body) {
		if !strings.HasPrefix(line, " ") {
			continue
		}
		name, level, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if !ok || !Level(level) || name == "" {
			return nil, fmt.Errorf("the answer is not a list of loggers: %.64q", line)
		}
		out[name] = level
	}
	if len(out) == 0 {
		return nil, errors.New("the answer is not a list of loggers")
	}
	return out, nil
}

// levels are the log levels in descending verbosity. Envoy also accepts "warn" and "err".
var levels = []string{"trace", "debug", "info", "warning", "warn", "error", "err", "critical", "off"}

// Level reports whether name is a log level.
func Level(name string) bool { return slices.Contains(levels, name) }
