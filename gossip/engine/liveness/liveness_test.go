package liveness

import (
	"fmt"
	"testing"
	"time"
)

var simStart = time.UnixMilli(1_800_000_000_000)

// TestLiveness checks the table of Serving states.
func TestLiveness(t *testing.T) {
	for _, c := range []struct {
		name  string
		nodes int // without this one
		down  []int
		wait  time.Duration // between down and up
		up    []int
		left  []int
		after time.Duration // time since the deaths
		want  []Serving
		hold  bool
	}{
		{name: "alive", nodes: 2, want: []Serving{Serve, Serve}},
		{name: "one of five dies", nodes: 4, down: []int{0}, want: []Serving{Unhealthy, Serve, Serve, Serve}},
		{name: "and is removed", nodes: 4, down: []int{0}, after: 31 * time.Second,
			want: []Serving{Removed, Serve, Serve, Serve}},
		{name: "one of three dies", nodes: 2, down: []int{0}, after: 31 * time.Second, want: []Serving{Removed, Serve}},
		{name: "a half dies at once", nodes: 3, down: []int{0, 1}, after: 59 * time.Minute,
			want: []Serving{Unhealthy, Unhealthy, Serve}, hold: true},
		{name: "the hold has ended", nodes: 3, down: []int{0, 1}, after: time.Hour, want: []Serving{Removed, Removed, Serve}},
		{name: "the other one of two", nodes: 1, down: []int{0}, after: 59 * time.Minute, want: []Serving{Unhealthy},
			hold: true},
		{name: "more than 30 %", nodes: 5, down: []int{0, 1}, after: 59 * time.Minute,
			want: []Serving{Unhealthy, Unhealthy, Serve, Serve, Serve}, hold: true},
		{name: "back again", nodes: 3, down: []int{0, 1}, up: []int{0, 1}, after: time.Hour,
			want: []Serving{Serve, Serve, Serve}},
		{name: "most are back: the others are dead", nodes: 5, down: []int{0, 1, 2}, up: []int{0, 1}, after: time.Hour,
			want: []Serving{Serve, Serve, Removed, Serve, Serve}},
		{name: "and they have time to return too", nodes: 5, down: []int{0, 1, 2}, wait: 5 * time.Minute, up: []int{0, 1},
			after: 29 * time.Second, want: []Serving{Serve, Serve, Unhealthy, Serve, Serve}},
		{name: "left", nodes: 4, left: []int{1}, want: []Serving{Serve, Removed, Serve, Serve}},
		{name: "left, and gone", nodes: 2, left: []int{0, 1}, down: []int{0, 1}, want: []Serving{Removed, Removed}},
	} {
		now := simStart
		l := New(ID{99}, now)
		for i := range c.nodes {
			l.SetLeft(ID{byte(i)}, false, false)
			l.MemberUp(ID{byte(i)}, now)
		}
		now = now.Add(time.Minute)
		for _, i := range c.left {
			l.SetLeft(ID{byte(i)}, true, false)
		}
		for _, i := range c.down {
			now = now.Add(time.Second)
			l.MemberDown(ID{byte(i)}, now)
		}
		now = now.Add(c.wait)
		for _, i := range c.up {
			l.MemberUp(ID{byte(i)}, now)
		}
		now = now.Add(c.after)
		var got []Serving
		for i := range c.nodes {
			got = append(got, l.Serving(ID{byte(i)}, now))
		}
		if fmt.Sprint(got) != fmt.Sprint(c.want) || l.Hold(now) != c.hold {
			t.Errorf("%s: %v, hold %v; want %v, %v", c.name, got, l.Hold(now), c.want, c.hold)
		}
	}
}

// TestLivenessAfterAStart checks that nodes known only from disk are served while this node is
// isolated, and count as dead when others are alive and they are not.
func TestLivenessAfterAStart(t *testing.T) {
	l := New(ID{99}, simStart)
	for i := range 5 {
		l.SetLeft(ID{byte(i)}, false, false)
	}
	l.MarkUnseen(simStart.Add(time.Hour))
	if s := l.Serving(ID{0}, simStart.Add(time.Hour)); s != Serve {
		t.Errorf("alone: %v", s)
	}
	for i := range 4 {
		l.MemberUp(ID{byte(i)}, simStart)
	}
	l.MarkUnseen(simStart.Add(10 * time.Second))
	if s := l.Serving(ID{4}, simStart.Add(10*time.Second)); s != Serve {
		t.Errorf("soon after the start: %v", s)
	}
	l.MarkUnseen(simStart.Add(31 * time.Second))
	if s := l.Serving(ID{4}, simStart.Add(32*time.Second)); s != Unhealthy {
		t.Errorf("missing: %v", s)
	}
	if s := l.Serving(ID{4}, simStart.Add(62*time.Second)); s != Removed {
		t.Errorf("missing for long: %v", s)
	}
	l.MemberDown(ID{0}, simStart.Add(time.Hour))
	if g := l.Gone(simStart.Add(30 * time.Hour)); len(g) != 2 {
		t.Errorf("gone: %v", g)
	}
}
