package main

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// lookups is a process that continuously resolves names.
type lookups struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.Closer
	beat  chan struct{} // capacity 1: a value every half second
	last  string        // last line
	over  chan struct{}
}

type lookedUp struct {
	Asked, Failed, OverASecond int
	Slowest                    float64
	Faults                     []string
}

// look starts a process that resolves names at the given rate, and waits for its first result.
// Names have the form NAME=ADDRESS.
func (p *dnsNode) look(options string, rate int, names ...string) *lookups {
	p.t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		p.t.Skip("skipped: python3 is not on PATH")
	}
	script, err := filepath.Abs("testdata/lookups.py")
	agenttest.Do(p.t, err)
	l := &lookups{t: p.t, cmd: p.command(options, append([]string{python, script, strconv.Itoa(rate)}, names...)...),
		beat: make(chan struct{}, 1), over: make(chan struct{})}
	out, err := l.cmd.StdoutPipe()
	agenttest.Do(p.t, err)
	l.cmd.Stderr = os.Stderr
	l.stdin, err = l.cmd.StdinPipe()
	agenttest.Do(p.t, err, l.cmd.Start())
	go func() {
		defer close(l.over)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			l.last = lines.Text()
			select {
			case l.beat <- struct{}{}:
			default:
			}
		}
	}()
	p.t.Cleanup(func() { _ = l.cmd.Process.Kill(); <-l.over })
	l.goOn()
	return l
}

// goOn waits until lookups have continued for about half a second.
func (l *lookups) goOn() {
	l.t.Helper()
	select {
	case <-l.beat:
	default:
	}
	select {
	case <-l.beat:
	case <-l.over:
		l.t.Fatal("the look-ups have ended")
	case <-time.After(patience):
		l.t.Fatal("no look-up ends any more")
	}
}

// end ends the process and returns its results.
func (l *lookups) end() (out lookedUp) {
	l.t.Helper()
	_ = l.stdin.Close()
	<-l.over
	agenttest.Do(l.t, l.cmd.Wait(), json.Unmarshal([]byte(l.last), &out))
	return out
}

// span is a time, for example that of a kill: from before the signal until after the end.
type span struct{ began, ended time.Time }

// watchPauses watches for times in which this process does not run, because the machine stands
// still, until the returned function is called.
func watchPauses() func() []span {
	var found []span
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		over := false
		for last := time.Now(); !over; {
			select {
			case <-stop:
				over = true
			case <-tick.C:
			}
			now := time.Now()
			if now.Sub(last) > 500*time.Millisecond {
				found = append(found, span{began: last, ended: now})
			}
			last = now
		}
	}()
	return func() []span { close(stop); <-ended; return found }
}

// during reports whether all faults are of lookups that were in progress during one of spans.
func (l *lookedUp) during(spans []span) bool {
	inProgress := func(fault string) bool {
		m := regexp.MustCompile(`after ([0-9.]+) s at ([0-9.]+)$`).FindStringSubmatch(fault)
		if m == nil {
			return false
		}
		seconds, _ := strconv.ParseFloat(m[1], 64)
		ended, _ := strconv.ParseFloat(m[2], 64)
		const rounded = 0.002
		at := func(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }
		return slices.ContainsFunc(spans, func(k span) bool {
			return ended-seconds-rounded <= at(k.ended) && at(k.began) <= ended+rounded
		})
	}
	return len(l.Faults) == l.Failed && !slices.ContainsFunc(l.Faults, func(f string) bool { return !inProgress(f) })
}
