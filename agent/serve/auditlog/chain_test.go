package auditlog_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nearside-mesh/nearside/agent/serve/audit"
	"github.com/nearside-mesh/nearside/agent/serve/auditlog"
	"github.com/nearside-mesh/nearside/rotation"
)

// chained is an audit log with its record.
type chained struct {
	t           *testing.T
	path, state string
	profile     audit.Profile
}

func newChained(t *testing.T) *chained {
	dir := t.TempDir()
	return &chained{t, filepath.Join(dir, "audit", "audit.log"), filepath.Join(dir, "audit-chain.json"),
		audit.ProfileDefault}
}

// write runs an agent for each group of events. In between, the file becomes a backup. It returns
// the last alarm.
func (c *chained) write(groups ...int) (alarm string) {
	c.t.Helper()
	for i, n := range groups {
		if i > 0 {
			c.do(os.Rename(c.path, c.backup(i)))
		}
		l, stop := run(c.t, auditlog.Options{Path: c.path, State: c.state, Profile: c.profile,
			Registry: prometheus.NewRegistry()})
		for range n {
			if err := l.Store(event()); err != nil {
				c.t.Error(err)
			}
		}
		alarm = l.Alarm()
		stop()
	}
	return alarm
}

// backup returns the path of a rotated file.
func (c *chained) backup(i int) string {
	return filepath.Join(filepath.Dir(c.path), fmt.Sprintf("audit-2026-01-%02dT00-00-00.000.log", i))
}

func (c *chained) do(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// edit changes the lines of a file.
func (c *chained) edit(path string, change func(lines []string) []string) {
	c.t.Helper()
	text, err := os.ReadFile(path)
	c.do(err)
	c.do(os.WriteFile(path, []byte(strings.Join(change(strings.SplitAfter(string(text), "\n")), "")), 0o640))
}

// verify compares the findings with the wanted ones: "KIND FILE:LINE DETAIL" with its begin.
func (c *chained) verify(record bool, want ...string) *audit.Report {
	c.t.Helper()
	o := auditlog.VerifyOptions{Path: c.path, Now: time.Now()}
	if record {
		var err error
		o.Record, err = auditlog.ReadRecord(c.state)
		c.do(err)
	}
	r, err := auditlog.Verify(o)
	c.do(err)
	var got []string
	for _, f := range r.Findings {
		got = append(got, fmt.Sprintf("%s %s:%d %s", f.Kind, filepath.Base(f.File), f.Line, f.Detail))
	}
	if !slices.EqualFunc(got, want, strings.HasPrefix) || r.Intact != (len(want) == 0) {
		c.t.Errorf("record %v: findings\n%s\nwant\n%s", record, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	return r
}

// TestChain: the chain continues over rotations and restarts, and the first event of a process
// names the start.
func TestChain(t *testing.T) {
	c := newChained(t)
	if alarm := c.write(3, 2, 4); alarm != "" {
		t.Error(alarm)
	}
	r := c.verify(true)
	if r.Events != 9 || r.First != 1 || r.Last.Number != 9 || r.Starts != 3 || r.Files != 3 || r.Plain+r.Cut != 0 {
		t.Errorf("%+v", r)
	}
	c.verify(false)
	for i, want := range []string{`"nearside.io/chain":"new","nearside.io/number":"1","nearside.io/previous":"` +
		strings.Repeat("0", 64) + `"}}`, `"nearside.io/chain":"resumed","nearside.io/number":"4"`} {
		if got := lines(t, c.backup(i+1))[0]; !strings.Contains(got, want) {
			t.Errorf("%s does not contain %s", got, want)
		}
	}
	if got := lines(t, c.path)[1]; !strings.Contains(got, `{"nearside.io/number":"7"`) {
		t.Error(got)
	}
}

// TestVerify changes an intact log in each way, with and without the agent's record.
func TestVerify(t *testing.T) {
	forged := `{"kind":"Event","apiVersion":"audit.k8s.io/v1","verb":"get"}` + "\n"
	// linked forges events that continue the chain after a line.
	linked := func(after string, n int) (out string) {
		link, _ := audit.LinkOf([]byte(after))
		for range n {
			out += string(link.Append(nil, event().Append(nil), ""))
		}
		return out
	}
	const b1, b2, active = "audit-2026-01-01T00-00-00.000.log:", "audit-2026-01-02T00-00-00.000.log:", "audit.log:"
	for _, x := range []struct {
		name   string
		change func(c *chained)
		want   []string // with the record
		alone  []string // without; nil: the same
	}{
		{name: "line removed", change: func(c *chained) {
			c.edit(c.backup(2), func(l []string) []string { return slices.Delete(l, 1, 2) })
		}, want: []string{"missing " + b2 + "2 event 7 is missing before this line"}},
		{name: "lines removed", change: func(c *chained) {
			c.edit(c.backup(1), func(l []string) []string { return slices.Delete(l, 1, 4) })
		}, want: []string{"missing " + b1 + "2 events 2 to 4 are missing"}},
		{name: "line changed", change: func(c *chained) {
			c.edit(c.backup(1), func(l []string) []string { l[2] = strings.Replace(l[2], "create", "delete", 1); return l })
		}, want: []string{"changed " + b1 + "3 the next event has the hash of another line"}},
		{name: "last line changed", change: func(c *chained) {
			c.edit(c.path, func(l []string) []string { l[4] = strings.Replace(l[4], "create", "delete", 1); return l })
		}, want: []string{"changed " + active + "5 the line differs from the agent's record"}, alone: []string{}},
		{name: "line inserted", change: func(c *chained) {
			c.edit(c.backup(2), func(l []string) []string { return slices.Insert(l, 2, forged, forged) })
		}, want: []string{"inserted " + b2 + "3 the agent did not write these 2 lines here"}},
		{name: "linked lines inserted", change: func(c *chained) {
			c.edit(c.backup(2), func(l []string) []string { return slices.Insert(l, 2, linked(l[1], 3)) })
		}, want: []string{"inserted " + b2 + "6 the agent did not write the 3 lines before this line, after line 2 of"}},
		{name: "linked line appended", change: func(c *chained) {
			c.edit(c.path, func(l []string) []string { return append(l, linked(l[4], 1)) })
		}, want: nil}, // the running agent finds it: see TestVerifyWhileWriting
		{name: "line appended", change: func(c *chained) {
			c.edit(c.path, func(l []string) []string { return append(l, forged) })
		}, want: []string{"inserted " + active + "6"}},
		{name: "cut within a line", change: func(c *chained) {
			c.edit(c.backup(1), func(l []string) []string { return append(l[:4], l[4][:40]) })
		}, want: []string{"incomplete " + b1 + "5", "missing " + b2 + "1 event 5 is missing"}},
		{name: "cut at the end", change: func(c *chained) {
			c.edit(c.path, func(l []string) []string { return l[:2] })
		}, want: []string{"missing " + active + "0 events 13 to 15 are missing at the end of the log"}, alone: []string{}},
		{name: "first file removed", change: func(c *chained) { c.do(os.Remove(c.backup(1))) },
			want: []string{"missing " + b2 + "1 events 1 to 5 are missing before this line; the limits"}, alone: []string{}},
		{name: "middle file removed", change: func(c *chained) { c.do(os.Remove(c.backup(2))) },
			want: []string{"missing " + active + "1 events 6 to 10"}},
		{name: "active file removed", change: func(c *chained) { c.do(os.Remove(c.path)) },
			want: []string{"missing " + active + "0 events 11 to 15"}, alone: []string{}},
		{name: "file emptied", change: func(c *chained) { c.do(os.Truncate(c.backup(2), 0)) },
			want: []string{"file " + b2 + "0 the rotated file is empty", "missing " + active + "1 events 6 to 10"}},
		{name: "name in the future", change: func(c *chained) {
			c.do(os.WriteFile(filepath.Join(filepath.Dir(c.path), "audit-2099-01-01T00-00-00.000.log"), []byte(forged), 0o640))
		}, want: []string{"file audit-2099-01-01T00-00-00.000.log:0 the time in the name",
			"inserted audit-2099-01-01T00-00-00.000.log:1"}},
		{name: "name in the past", change: func(c *chained) {
			c.do(os.WriteFile(filepath.Join(filepath.Dir(c.path), "audit-1999-01-01T00-00-00.000.log"), []byte(forged), 0o640))
		}, want: []string{"inserted audit-1999-01-01T00-00-00.000.log:1"}},
		{name: "copied file", change: func(c *chained) {
			c.edit(c.backup(1), func(l []string) []string {
				c.do(os.WriteFile(c.backup(3), []byte(strings.Join(l, "")), 0o640))
				return l
			})
		}, want: []string{"inserted audit-2026-01-03T00-00-00.000.log:1 the agent did not write these 5 lines here"}},
		{name: "files exchanged", change: func(c *chained) { c.do(os.Rename(c.backup(1), c.backup(3))) },
			want: []string{"inserted " + active + "1 the agent did not write the 5 lines before this line",
				"missing " + b2 + "1 events 1 to 5 are missing before this line; the limits"}, alone: []string{
				"inserted " + active + "1 the agent did not write the 5 lines before this line"}},
		{name: "damaged compressed file", change: func(c *chained) {
			c.do(os.WriteFile(c.backup(2)+".gz", []byte("no gzip"), 0o640))
			c.do(os.Remove(c.backup(2)))
		}, want: []string{"file audit-2026-01-02T00-00-00.000.log:0 the file cannot be read",
			"missing " + active + "1 events 6 to 10"}},
	} {
		t.Run(x.name, func(t *testing.T) {
			c := newChained(t)
			c.write(5, 5, 5)
			c.verify(true)
			x.change(c)
			c.verify(true, x.want...)
			if x.alone == nil {
				x.alone = x.want
			}
			c.verify(false, x.alone...)
		})
	}
}

// TestChainAfterChanges: the agent detects at its start that the end of the log differs from its
// record. Its next event continues the recorded chain, so the verification finds the difference.
func TestChainAfterChanges(t *testing.T) {
	for _, x := range []struct {
		name   string
		change func(c *chained)
		start  audit.Start
		alarm  bool
		want   []string
	}{
		{"cut", func(c *chained) { c.edit(c.path, func(l []string) []string { return l[:3] }) }, audit.StartChanged, true,
			[]string{"missing audit.log:4 events 4 to 5 are missing before this line"}},
		{"appended", func(c *chained) { c.edit(c.path, func(l []string) []string { return append(l, "{}\n") }) },
			audit.StartChanged, true, []string{"inserted audit.log:6"}},
		{"killed within a write", func(c *chained) {
			c.edit(c.path, func(l []string) []string { return append(l, l[4][:100]) })
		}, audit.StartUnreadable, false, nil},
		{"killed before the record was written", func(c *chained) {
			record, err := os.ReadFile(c.state)
			c.do(err)
			c.write(3)
			c.do(os.WriteFile(c.state, record, 0o600))
		}, audit.StartResumed, false, nil},
		{"removed", func(c *chained) { c.do(os.Remove(c.path)) }, audit.StartChanged, true,
			[]string{"missing audit.log:1 events 1 to 5 are missing"}},
		{"record removed", func(c *chained) { c.do(os.Remove(c.state)) }, audit.StartUnrecorded, false, nil},
		{"record damaged", func(c *chained) { c.do(os.WriteFile(c.state, []byte("{"), 0o600)) },
			audit.StartUnrecorded, false, nil},
		{"record and last lines removed", func(c *chained) {
			c.do(os.Remove(c.state))
			c.edit(c.path, func(l []string) []string { return append(l, "no event\n") })
		}, audit.StartUnreadable, false, nil},
		{"older version", func(c *chained) {
			c.do(os.Remove(c.state))
			c.do(os.WriteFile(c.path, bytes.Repeat([]byte("{\"kind\":\"Event\"}\n"), 3), 0o640))
		}, audit.StartPlain, false, nil},
	} {
		t.Run(x.name, func(t *testing.T) {
			c := newChained(t)
			c.write(5)
			x.change(c)
			alarm := c.write(4)
			if got := strings.Contains(alarm, "differs from the agent's record"); got != x.alarm {
				t.Errorf("alarm %q", alarm)
			}
			c.write(1)
			r := c.verify(true, x.want...)
			got := lines(t, c.path)
			if first := got[len(got)-5]; !strings.Contains(first, `"nearside.io/chain":"`+string(x.start)+`"`) {
				t.Errorf("the event does not begin with %s: %s", x.start, first)
			}
			if x.start == audit.StartPlain && (r.Plain != 3 || r.First != 1) {
				t.Errorf("%+v", r)
			}
		})
	}
}

// TestChainOverDroppedEvents: dropped events have no numbers, and the report of them has one.
func TestChainOverDroppedEvents(t *testing.T) {
	c := newChained(t)
	l, err := auditlog.New(auditlog.Options{Path: c.path, State: c.state, Profile: c.profile, Memory: 2 << 10})
	c.do(err)
	for range 100 {
		l.Record(event())
	}
	_, stop := finish(t, l)
	c.do(l.Store(event()))
	stop()
	c.verify(true)
	if n := len(lines(t, c.path)); n > 20 || !strings.Contains(strings.Join(lines(t, c.path), ""), `"verb":"drop"`) {
		t.Errorf("%d lines", n)
	}
}

// TestVerifyWhileWriting verifies a log while it is written, rotated, and pruned.
func TestVerifyWhileWriting(t *testing.T) {
	c := newChained(t)
	l, stop := run(t, auditlog.Options{Path: c.path, State: c.state, Profile: c.profile,
		Limits: rotation.Limits{MaxFileSize: 1, MaxFiles: 2}})
	defer stop()
	e := event()
	e.UserAgent = strings.Repeat("x", 1<<10)
	for i := range 8 {
		for range 600 {
			l.Record(e)
		}
		c.do(l.Store(e))
		for range 600 {
			l.Record(e)
		}
		r, err := auditlog.Verify(auditlog.VerifyOptions{Path: c.path, Record: l.Chain(), After: l.Chain, Now: time.Now()})
		if err != nil || !r.Intact {
			t.Fatalf("%d: %+v %v", i, r, err)
		}
	}
	// An event that continues the chain but is not the agent's.
	c.do(l.Store(e))
	for l.Chain().Last.Number != 8*1201+1 {
		t.Fatal(l.Chain().Last.Number)
	}
	c.edit(c.path, func(x []string) []string {
		link, _ := audit.LinkOf([]byte(x[len(x)-2]))
		return append(x, string(link.Append(nil, e.Append(nil), "")))
	})
	r, err := auditlog.Verify(auditlog.VerifyOptions{Path: c.path, Record: l.Chain(), After: l.Chain})
	if err != nil || len(r.Findings) != 1 || !strings.Contains(r.Findings[0].Detail, "did not write event 9610") ||
		r.First == 1 {
		t.Errorf("%+v %v", r, err)
	}
}

// TestProfileSwitch: each change of the profile is an event, also over a restart and to None.
func TestProfileSwitch(t *testing.T) {
	c := newChained(t)
	l, stop := run(t, auditlog.Options{Path: c.path, State: c.state, Profile: c.profile})
	c.do(l.Store(event()))
	l.SetProfile(audit.ProfileNone)
	l.SetProfile(audit.ProfileNone)
	stop()
	c.profile = audit.ProfileAllRequests
	c.write(1)
	c.profile = audit.ProfileNone
	_, stop = run(t, auditlog.Options{Path: c.path, State: c.state, Profile: c.profile})
	stop()
	var got []string
	for _, line := range lines(t, c.path) {
		if _, rest, ok := strings.Cut(line, `"nearside.io/config":"auditLog.profile: `); ok {
			got = append(got, rest[:strings.IndexByte(rest, '"')])
		}
	}
	want := "None, before Default; AllRequestBodies, before None; None, before AllRequestBodies"
	if text := strings.Join(got, "; "); text != want {
		t.Errorf("%s, want %s", text, want)
	}
	c.verify(true)
}
