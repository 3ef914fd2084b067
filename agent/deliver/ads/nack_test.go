package ads_test

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// TestNackSotwOnce: by rule P1, a rejected response is not repeated until its type changes, and
// then it is sent at once.
func TestNackSotwOnce(t *testing.T) {
	reg := prometheus.NewRegistry()
	a := servingWith(t, config("LDS:l=l1"), options{Registry: reg})
	c := a.sotw(nodeOf("default.web"))
	c.ask(lds)
	c.wantAck("LDS l1")
	a.push(config("LDS:l=l2"))
	bad := c.want("LDS l2")
	c.nack(bad, "l: no good")
	c.nack(bad, "l: no good") // the client repeats its rejection
	c.ask(rds, "r")
	c.wantAck("RDS", "r")
	a.push(config("LDS:l=l2", "RDS:r=r1")) // another type
	c.wantAck("RDS r1", "r")
	ts := typeStatus(t, a.status("default.web"), lds)
	if ts.NACK == nil || ts.NACK.Reason != "l: no good" || len(ts.NACK.Resources) != 1 ||
		ts.NACK.Version != bad.GetVersionInfo() {
		t.Errorf("NACK: %+v", ts.NACK)
	}
	if len(ts.Held) != 1 || ts.Held[0].Name != "l" || ts.Held[0].AcceptedVersion == "" ||
		ts.Held[0].AcceptedVersion == ts.Held[0].RejectedVersion {
		t.Errorf("held: %+v", ts.Held)
	}
	a.push(config("LDS:l=l3", "RDS:r=r1"))
	c.wantAck("LDS l3")
	c.ask(rds, "r", "s")
	c.want("RDS")
	if ts := typeStatus(t, a.status("default.web"), lds); ts.NACK != nil || len(ts.Held) != 0 ||
		ts.AckedVersion != ts.SentVersion {
		t.Errorf("after the good one: %+v", ts)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += "," + l.GetValue()
			}
			got[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	for name, want := range map[string]float64{
		"nearside_xds_nacks_total,listener": 1, "nearside_xds_nacks_total,cluster": 0, "nearside_xds_connected_proxies": 1,
		"nearside_xds_delivery_seconds": 3,
	} {
		if v, ok := got[name]; !ok || v != want {
			t.Errorf("%s is %v, want %v", name, v, want)
		}
	}
}

// TestNackDelta: by rules P1 to P3, all names of a rejected response are sent again with the next
// push, the bad one in its last accepted bytes.
func TestNackDelta(t *testing.T) {
	a := serving(t, config("LDS:a=1", "LDS:b=1", "LDS:c=1"))
	c := a.delta("default.web")
	c.subscribe(lds)
	c.wantAck("LDS a=1 b=1 c=1")
	a.push(config("LDS:a=2", "LDS:b=2", "LDS:c=1"))
	c.nack(c.want("LDS a=2 b=2"), "Error adding/updating listener(s) b: bad")
	c.subscribe(rds, "x")
	c.wantAck("RDS -x")
	ts := typeStatus(t, a.status("default.web"), lds)
	if len(ts.Held) != 1 || ts.Held[0].Name != "b" {
		t.Errorf("held: %+v", ts.Held)
	}
	// The names of that response are sent again, and b in its accepted form.
	a.push(config("LDS:a=2", "LDS:b=2", "LDS:c=2"))
	c.wantAck("LDS a=2 b=1 c=2")
	// A requested name is answered.
	c.subscribe(lds, "d")
	c.wantAck("LDS -d")
	c.subscribe(lds, "b")
	c.wantAck("LDS b=1")
	// A change that is reverted is a change too.
	a.push(config("LDS:a=2", "LDS:c=2"))
	c.wantAck("LDS -b")
	a.push(config("LDS:a=2", "LDS:b=2", "LDS:c=2"))
	c.wantAck("LDS b=2")
	c.subscribe(rds, "x")
	c.want("RDS -x")
	if ts := typeStatus(t, a.status("default.web"), lds); ts.NACK != nil || len(ts.Held) != 0 {
		t.Errorf("after all: %+v", ts)
	}
}

// TestNackRestart: by rule P2, a proxy that restarts receives the last accepted bytes of each
// resource that it rejects.
func TestNackRestart(t *testing.T) {
	good := config("LDS:a=1", "LDS:ab=1")
	next := config("LDS:a=2", "LDS:ab=2", "LDS:new=1")
	for _, kind := range []string{"delta", "sotw"} {
		t.Run(kind, func(t *testing.T) {
			a := serving(t, good)
			first := func(line, reason string) { // a new stream, its first response, and the reaction
				t.Helper()
				if kind == "delta" {
					c := a.delta("default.web")
					c.subscribe(lds)
					resp := c.want(line)
					if c.ack(resp); reason != "" {
						a.push(next)
						c.nack(c.want("LDS a=2 ab=2 new=1"), reason)
					}
					c.subscribe(rds, "x")
					c.wantAck("RDS -x")
					return
				}
				c := a.sotw(nodeOf("default.web"))
				c.ask(lds)
				c.wantAck(map[string]string{"LDS a=1 ab=1": "LDS 1 1", "LDS a=2 ab=1 new=1": "LDS 2 1 1"}[line])
				if reason != "" {
					a.push(next)
					c.nack(c.want("LDS 2 2 1"), reason)
				}
				c.ask(rds, "x")
				c.wantAck("RDS", "x")
			}
			first("LDS a=1 ab=1", "listener ab: bind failed; listener new: bad")
			held := typeStatus(t, a.status("default.web"), lds).Held
			if len(held) != 2 || held[0].Name != "ab" || held[1].Name != "new" || held[1].AcceptedVersion != "" {
				t.Errorf("held: %+v", held)
			}
			first("LDS a=2 ab=1 new=1", "") // "a" is not named, although "ab" contains it; "new" gets another chance
			held = typeStatus(t, a.status("default.web"), lds).Held
			if len(held) != 1 || held[0].Name != "ab" {
				t.Errorf("held after the restart: %+v", held)
			}
			if p := a.status("default.web"); p.InSync {
				t.Error("in sync while resources are held")
			}
		})
	}
}

// TestNackRestartPush: a resource that was rejected in a response without other resources, and
// without a name in the message, is not sent again to a proxy that reconnects.
func TestNackRestartPush(t *testing.T) {
	cfg := config("LDS:a=1", "LDS:b=1")
	a := serving(t, cfg)
	c := a.delta("default.web")
	c.subscribe(lds)
	c.wantAck("LDS a=1 b=1")
	accepted := versionsOf(cfg, lds)
	a.push(config("LDS:a=2", "LDS:b=1"))
	c.nack(c.want("LDS a=2"), "something went wrong") // names no resource, so all changed resources are suspect
	c.subscribe(rds, "x")
	c.wantAck("RDS -x")

	d := a.delta("default.web")
	d.resume(lds, accepted)
	d.subscribe(rds, "x")
	d.wantAck("RDS -x")
	a.push(config("LDS:a=2", "LDS:b=2"))
	d.wantAck("LDS b=2")
}

// TestNackAllSuspect: if the message names no resource, all resources whose bytes were not accepted
// before are suspect and are sent again in halves.
func TestNackAllSuspect(t *testing.T) {
	a := serving(t, config("LDS:a=1", "LDS:b=1"))
	c := a.sotw(nodeOf("default.web"))
	c.ask(lds)
	c.wantAck("LDS 1 1")
	a.push(config("LDS:a=1", "LDS:b=2", "LDS:c=1"))
	c.nack(c.want("LDS 1 2 1"), "no idea")
	half := c.want("LDS 1 2")
	held := typeStatus(t, a.status("default.web"), lds).Held
	if len(held) != 2 || held[0].Name != "b" || held[1].Name != "c" ||
		!strings.Contains(held[0].Reason, "sent again in groups") {
		t.Errorf("held: %+v", held)
	}
	if p := a.progress("default.web"); len(p.Rejected) != 2 || !p.Rejected[0].Suspect {
		t.Errorf("rejected: %+v", p.Rejected)
	}
	c.nack(half, "no idea")
	c.wantAck("LDS 1 1 1")
	c.ask(rds, "x")
	c.want("RDS")
	if held := typeStatus(t, a.status("default.web"), lds).Held; len(held) != 1 || held[0].Name != "b" {
		t.Errorf("held in the end: %+v", held)
	}
}
