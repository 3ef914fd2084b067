package ads_test

import (
	"context"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/deliver/rollout"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

// slowLog is a log that blocks from the first line that contains a word until it is released.
type slowLog struct {
	slog.Handler
	word             string
	entered, release chan struct{}
}

func (l *slowLog) Enabled(context.Context, slog.Level) bool { return true }

func (l *slowLog) Handle(_ context.Context, r slog.Record) error {
	if strings.Contains(r.Message, l.word) {
		select {
		case l.entered <- struct{}{}:
		case <-l.release:
		}
		<-l.release
	}
	return nil
}

// TestNothingWaitsForTheLog: while the log blocks, the node's other streams are served, configs are
// published, and the status is available.
func TestNothingWaitsForTheLog(t *testing.T) {
	for word, log := range map[string]func(a *agent, c *deltaClient) (wait func()){
		"rejected a response": func(_ *agent, c *deltaClient) func() {
			c.subscribe(cds)
			c.nack(c.want("CDS c=1"), "c: no")
			return func() {}
		},
		"withheld": func(a *agent, _ *deltaClient) func() {
			return goOn(func() {
				cfg, withheld := without(config("CDS:c=1", "LDS:l=2"), config("CDS:c=1", "LDS:l=1"), []string{"LDS:l"})
				a.Publish(map[node.Key]rollout.Config{web: {Sealed: cfg, LastStream: everyStream, Withheld: withheld,
					Listeners: a.Listeners(web)}})
			})
		},
	} {
		t.Run(word, func(t *testing.T) {
			l := &slowLog{Handler: slog.NewTextHandler(io.Discard, nil), word: word, entered: make(chan struct{}),
				release: make(chan struct{})}
			a := servingWith(t, config("CDS:c=1", "LDS:l=1"), options{Log: slog.New(l)})
			c, d := a.delta("default.web"), a.delta("default.web")
			d.subscribe(lds)
			d.wantAck("LDS l=1")
			wait := log(a, c)
			t.Cleanup(func() { close(l.release); wait() })
			<-l.entered
			d.subscribe(rds, "x")
			d.wantAck("RDS -x")
			a.status("default.web")
			a.push(config("CDS:c=1", "LDS:l=3"))
			d.wantAck("LDS l=3")
		})
	}
}

// goOn runs a function concurrently and returns a function that waits until it has finished.
func goOn(f func()) (wait func()) {
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	return func() { <-done }
}
