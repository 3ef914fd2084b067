package envoyadmin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
)

// maxDrainTime limits the times of an answer.
const maxDrainTime = 10 * 365 * 24 * time.Hour

// DrainSettings returns how the Envoy drains, from /server_info, or from the arguments of an Envoy
// in a pod. It does not change while the process runs.
func (e Envoy) DrainSettings(ctx context.Context) (api.DrainSettings, error) {
	body, err := e.ask(ctx, "GET", "/server_info", short)
	if errors.Is(err, access.ErrPodAdmin) && e.Peer.PID > 0 {
		return commandLine(e.Peer.PID)
	}
	if err != nil {
		return api.DrainSettings{}, err
	}
	var info struct {
		Options struct {
			Time           string `json:"drain_time"`
			Strategy       string `json:"drain_strategy"`
			ParentShutdown string `json:"parent_shutdown_time"`
		} `json:"command_line_options"`
	}
	if err := json.Unmarshal(body, &info); err != nil {
		return api.DrainSettings{}, errors.New("the answer is not a JSON document of the server")
	}
	var out api.DrainSettings
	for _, x := range []struct {
		name, text string
		to         *time.Duration
	}{
		{"drain_time", info.Options.Time, &out.Time},
		{"parent_shutdown_time", info.Options.ParentShutdown, &out.ParentShutdown},
	} {
		d, err := time.ParseDuration(x.text)
		if err != nil || d < 0 || d > maxDrainTime || !strings.HasSuffix(x.text, "s") {
			return api.DrainSettings{}, fmt.Errorf("the answer has no valid %s: %.64q", x.name, x.text)
		}
		*x.to = d
	}
	switch out.Strategy = strings.ToLower(info.Options.Strategy); out.Strategy {
	case api.Gradual, api.Immediate:
		return out, nil
	}
	return api.DrainSettings{}, fmt.Errorf("the answer has no valid drain_strategy: %.64q", info.Options.Strategy)
}

// drainingGauges are the gauges of [api.DrainingListeners].
const drainingGauges = `^listener_manager\.total_(listeners_draining|filter_chains_draining|listeners_warming)$`

// Draining returns what drains in the Envoy now. Envoy counts a listener or filter chain until its
// drain time is over, even if it has no connection.
func (e Envoy) Draining(ctx context.Context) (api.DrainingListeners, error) {
	body, err := e.get(ctx, "/stats?filter="+url.QueryEscape(drainingGauges))
	if err != nil {
		return api.DrainingListeners{}, err
	}
	var out api.DrainingListeners
	to := map[string]*int{"listener_manager.total_listeners_draining": &out.Listeners,
		"listener_manager.total_filter_chains_draining": &out.Chains,
		"listener_manager.total_listeners_warming":      &out.Warming}
	for line := range strings.Lines(body) {
		name, text, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		v, err := strconv.ParseUint(text, 10, 31)
		if err != nil || to[name] == nil {
			return api.DrainingListeners{}, errors.New("the answer is not a list of the gauges that were asked for")
		}
		*to[name] = int(v)
		delete(to, name)
	}
	if len(to) > 0 {
		return api.DrainingListeners{}, errors.New("the answer lacks a gauge of draining listeners")
	}
	return out, nil
}
