package text

import (
	"fmt"
	"io"
	"strings"

	"github.com/nearside-mesh/nearside/agent/answer/explain"
)

// Flow writes for people how proxies handle a connection or request.
func Flow(w io.Writer, x *explain.Flow) {
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
	Printf(w, "%s", Layout(p.String()))
}

// flowPrinter collects the lines.
type flowPrinter struct{ strings.Builder }

func (p *flowPrinter) printf(format string, args ...any) { Printf(&p.Builder, format, args...) }

func (p *flowPrinter) flow(x *explain.Flow) {
	p.printf("%s: %s\n", x.Verdict, x.Reason)
	p.way(&x.Way)
	for i := range x.Servers {
		s := &x.Servers[i]
		p.printf("\nserver %s: %s: %s\n", s.Dataplane.String(), s.Verdict, s.Reason)
		p.way(s)
	}
	if x.Suggest != "" {
		p.printf("\nThis change would allow it:\n\n")
		for line := range strings.Lines(x.Suggest) {
			p.printf("  %s\n", strings.TrimSuffix(line, "\n"))
		}
	}
}

// way writes the steps through one proxy.
func (p *flowPrinter) way(w *explain.Way) {
	for i := range w.Steps {
		p.step(&w.Steps[i])
	}
	for i := range w.Effects {
		e := &w.Effects[i]
		p.printf("  %-20s %s\n", e.Kind, e.Text)
		for _, f := range e.Policies {
			p.printf("%sby %s\n", flowIndent, f.String())
		}
	}
	if w.Wait != nil {
		p.printf("  %-20s a client that sends nothing %s\n", "wait", w.Wait)
	}
	for i := range w.Mirrors {
		p.printf("  %-20s %s\n", "mirror", &w.Mirrors[i])
		p.upstream(w.Mirrors[i].Request)
	}
	if len(w.Clusters) == 0 {
		return
	}
	for i := range w.Clusters {
		if c := &w.Clusters[i]; c.Request != nil {
			p.printf("  %-20s %s\n", "sends", c.Name)
			p.upstream(c.Request)
		}
	}
	var b strings.Builder
	t := NewTable(&b, "  CLUSTER", "WEIGHT", "ENDPOINTS", "ADDRESSES")
	for _, c := range w.Clusters {
		addresses := Some(c.Addresses)
		switch {
		case c.Missing:
			addresses = "there is no such cluster"
		case c.Pinned:
			addresses += " (resolved by the proxy, regardless of the dialed address)"
		}
		t.Row("  "+c.Name, fmt.Sprintf("%d of %d", c.Weight, c.Total), fmt.Sprint(c.Endpoints), addresses)
	}
	t.Flush()
	p.WriteString(b.String())
}

// flowIndent indents lines that continue the line above.
const flowIndent = "                       "

// upstream writes a request as a cluster receives it.
func (p *flowPrinter) upstream(u *explain.Upstream) {
	p.printf("%s%s %s, host %s\n", flowIndent, u.Method, u.Path, u.Host)
	for _, h := range u.Headers {
		p.printf("%s%s: %s\n", flowIndent, h.Name, h.Value)
	}
	if u.Note != "" {
		p.printf("%s(%s)\n", flowIndent, u.Note)
	}
}

func (p *flowPrinter) step(s *explain.FlowStep) {
	p.printf("  %-20s ", s.At)
	if s.Saw != "" {
		p.printf("%s -> ", s.Saw)
	}
	if s.Chose == "" {
		p.printf("nothing")
	} else {
		p.printf("%s", s.Chose)
	}
	if s.Note != "" {
		p.printf(" (%s)", s.Note)
	}
	p.printf("\n")
	for _, e := range s.Eliminated {
		p.printf("%snot %s: %s\n", flowIndent, e.Name, e.Why)
	}
	if s.More > 0 {
		p.printf("%sand %d more\n", flowIndent, s.More)
	}
	for _, f := range s.Policies {
		p.printf("%sby %s\n", flowIndent, f.String())
	}
}
