package main

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/nearside-mesh/nearside/agent/client"
)

// flowText writes what becomes of a connection or request for people.
func (a *app) flowText(x *client.Flow) error {
	p := &flowPrinter{}
	p.flow(x)
	if x.Shadow != nil {
		p.printf("\n")
		switch {
		case x.Parts == "":
			p.printf("With the shadow policies in force: the same.\n")
		default:
			p.printf("With the shadow policies in force, from the step %s on:\n\n", x.Parts)
			p.flow(x.Shadow)
		}
	}
	_, err := fmt.Fprint(a.stdout, p.String())
	return err
}

// flowPrinter collects the lines. What comes from documents and config is quoted where it does not print.
type flowPrinter struct{ strings.Builder }

func (p *flowPrinter) printf(format string, args ...any) { fmt.Fprintf(&p.Builder, format, args...) }

func (p *flowPrinter) flow(x *client.Flow) {
	p.printf("%s: %s\n", x.Verdict, printable(x.Reason))
	p.way(&x.Way)
	for i := range x.Servers {
		s := &x.Servers[i]
		p.printf("\nserver %s: %s: %s\n", printable(s.Dataplane.String()), s.Verdict, printable(s.Reason))
		p.way(s)
	}
	if x.Suggest != "" {
		p.printf("\nThis would allow it:\n\n")
		for line := range strings.Lines(x.Suggest) {
			p.printf("  %s", line)
		}
	}
}

// way writes the steps through one proxy.
func (p *flowPrinter) way(w *client.FlowWay) {
	for i := range w.Steps {
		p.step(&w.Steps[i])
	}
	if len(w.Clusters) == 0 {
		return
	}
	var b strings.Builder
	t := newTable(&b, "  CLUSTER", "WEIGHT", "ENDPOINTS", "ADDRESSES")
	for _, c := range w.Clusters {
		addresses := some(c.Addresses)
		switch {
		case c.Missing:
			addresses = "there is no such cluster"
		case c.Pinned:
			addresses += " (looked up by the proxy, whatever was dialled)"
		}
		t.row("  "+c.Name, fmt.Sprintf("%d of %d", c.Weight, c.Total), fmt.Sprint(c.Endpoints), addresses)
	}
	_ = t.flush() // a strings.Builder takes everything
	p.WriteString(b.String())
}

func (p *flowPrinter) step(s *client.FlowStep) {
	p.printf("  %-20s ", s.At)
	if s.Saw != "" {
		p.printf("%s -> ", printable(s.Saw))
	}
	if s.Chose == "" {
		p.printf("nothing")
	} else {
		p.printf("%s", printable(s.Chose))
	}
	if s.Note != "" {
		p.printf(" (%s)", printable(s.Note))
	}
	p.printf("\n")
	const indent = "                       "
	for _, e := range s.Eliminated {
		p.printf("%snot %s: %s\n", indent, printable(e.Name), printable(e.Why))
	}
	if s.More > 0 {
		p.printf("%sand %d more\n", indent, s.More)
	}
	for _, f := range s.Policies {
		p.printf("%sby %s\n", indent, printable(f.String()))
	}
}

// printable quotes a text that would do something to a terminal.
func printable(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return fmt.Sprintf("%q", s)
	}
	return s
}
