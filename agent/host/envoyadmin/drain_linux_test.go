package envoyadmin_test

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/host/envoyadmin"
	"github.com/nearside-mesh/nearside/agent/model/api"
)

// body responds to every request with a text.
func body(text string) func(net.Conn, string) {
	return func(c net.Conn, _ string) {
		fmt.Fprintf(c, "HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s", len(text), text)
	}
}

// TestDrainSettings reads valid settings. It checks that others are errors that name the value.
func TestDrainSettings(t *testing.T) {
	options := func(drain, strategy, parent string) string {
		return fmt.Sprintf(`{"command_line_options": {"drain_time": %s, "drain_strategy": %s, "parent_shutdown_time": %s}}`,
			drain, strategy, parent)
	}
	got, err := serve(t, body(options(`"30s"`, `"Immediate"`, `"900s"`))).DrainSettings(t.Context())
	want := api.DrainSettings{Time: 30 * time.Second, Strategy: api.Immediate, ParentShutdown: 900 * time.Second}
	if err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := serve(t, body(options(`"600s"`, `"Gradual"`, `"900s"`))).DrainSettings(t.Context()); err != nil ||
		got != api.DefaultDrain {
		t.Errorf("%+v, %v", got, err)
	}
	for text, want := range map[string]string{
		"":                                      "not a JSON document",
		"[]":                                    "not a JSON document",
		"{}":                                    `no valid drain_time: ""`,
		options(`"-1s"`, `"Gradual"`, `"900s"`): `no valid drain_time: "-1s"`,
		options(`"1h"`, `"Gradual"`, `"900s"`):  `no valid drain_time: "1h"`,
		options(`"99999999999999s"`, `"Gradual"`, `"900s"`): "no valid drain_time",
		options(`"1s"`, `"Sudden"`, `"900s"`):               `no valid drain_strategy: "Sudden"`,
		options(`"1s"`, `"Gradual"`, `"x"`):                 `no valid parent_shutdown_time: "x"`,
		options(`5`, `"Gradual"`, `"900s"`):                 "not a JSON document",
	} {
		if got, err := serve(t, body(text)).DrainSettings(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v; want %q", text, got, err, want)
		}
	}
}

// TestDraining reads gauges. It checks that an answer with others, or without one, is an error.
func TestDraining(t *testing.T) {
	const chains, listeners, warming = "listener_manager.total_filter_chains_draining: 1\n",
		"listener_manager.total_listeners_draining: 2\n", "listener_manager.total_listeners_warming: 3\n"
	got, err := serve(t, body(chains+listeners+warming)).Draining(t.Context())
	if want := (api.DrainingListeners{Chains: 1, Listeners: 2, Warming: 3}); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	for text, want := range map[string]string{
		"":                                    "lacks a gauge",
		chains + listeners:                    "lacks a gauge",
		chains + listeners + warming + chains: "not a list of the gauges",
		chains + listeners + "x: 1\n":         "not a list of the gauges",
		chains + listeners + "listener_manager.total_listeners_warming: -1\n": "not a list of the gauges",
	} {
		if got, err := serve(t, body(text)).Draining(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %+v, %v; want %q", text, got, err, want)
		}
	}
}

// TestHealth checks the requests that change the health of an Envoy, with a socket at any path too,
// and the sum of its active requests.
func TestHealth(t *testing.T) {
	asked := make(chan string, 2)
	e := serve(t, func(c net.Conn, path string) {
		asked <- path // the method of a POST
		fmt.Fprint(c, "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nOK\n")
	})
	own := envoyadmin.Envoy{Socket: filepath.Join(e.Dir, strconv.Itoa(int(e.Peer.UID)), e.ID+".sock")}
	for _, do := range []func(context.Context) error{e.FailHealth, e.PassHealth, own.FailHealth} {
		if err := do(t.Context()); err != nil {
			t.Error(err)
		}
		if got := <-asked; got != "POST" {
			t.Errorf("asked %q", got)
		}
	}
	const one, two = "cluster.localhost_80.upstream_rq_active: 2\n",
		"cluster.inbound_passthrough_ipv4.upstream_rq_active: 1\n"
	if n, err := serve(t, body(one+two)).Active(t.Context()); err != nil || n != 3 {
		t.Errorf("%d, %v", n, err)
	}
	if n, err := serve(t, body("")).Active(t.Context()); err != nil || n != 0 {
		t.Errorf("without an inbound: %d, %v", n, err)
	}
	for _, text := range []string{"other: 1\n", one + "cluster.localhost_81.upstream_rq_active: -1\n", "x"} {
		if _, err := serve(t, body(text)).Active(t.Context()); err == nil ||
			!strings.Contains(err.Error(), "not a list of the gauges") {
			t.Errorf("%q: %v", text, err)
		}
	}
}
