package audit

import (
	"encoding/json"
	"fmt"
	"slices"
)

// Kinds of a [Finding].
const (
	FoundMissing    = "missing"    // events are missing before this line, or at the end of the log
	FoundInserted   = "inserted"   // the agent did not write these lines, or not at this place
	FoundChanged    = "changed"    // the line was changed after the agent wrote it
	FoundIncomplete = "incomplete" // the line ends within an event
	FoundFile       = "file"       // the file was not written by the agent, or cannot be read
)

// Finding is a break of the chain.
type Finding struct {
	Kind   string `json:"kind"`
	File   string `json:"file"`
	Line   int    `json:"line,omitempty"`   // 0: the whole file
	Lines  int    `json:"lines,omitempty"`  // number of inserted lines
	Number uint64 `json:"number,omitempty"` // first missing event, or the changed one
	Until  uint64 `json:"until,omitempty"`  // last missing event
	Time   string `json:"time,omitempty"`   // of the event of the line
	Detail string `json:"detail"`
}

// Report is the result of a verification.
type Report struct {
	Intact bool `json:"intact"` // there are no findings
	Files  int  `json:"files"`
	Events int  `json:"events"` // in the chain
	Plain  int  `json:"plain"`  // lines of an older version before the chain
	Starts int  `json:"starts"` // of the agent
	// Cut is the number of lines that a killed agent has left incomplete. They are no findings.
	Cut   int    `json:"cut"`
	First uint64 `json:"first"` // number of the first event
	Last  Link   `json:"last"`  // of the last event
	Time  string `json:"time"`  // of the last event
	// Compared is set if the log was compared with the agent's record of it.
	Compared bool      `json:"compared"`
	Findings []Finding `json:"findings"`
	More     int       `json:"more,omitempty"` // findings that are not listed
}

// Record is the agent's record of the log.
type Record struct {
	First uint64 `json:"first"` // lowest number that the limits have not removed
	Last  Link   `json:"last"`
	// Pending is the number of the last event that is being written, or 0.
	Pending uint64 `json:"pending,omitempty"`
}

// Bounds of a [Verifier].
const (
	maxFindings = 200
	maxSuspects = 1 << 10
	maxHeads    = 1 << 10
	maxText     = 4 << 10 // of a suspect, in bytes
)

// Verifier follows the chain of a log, line by line. It is not safe for concurrent use.
type Verifier struct {
	record *Record
	report Report

	first position  // the first event
	good  *position // the last line in the chain; nil: none
	// suspects are the lines after good. If there are too many, the last one replaces its predecessor,
	// and skipped counts it.
	suspects []position
	skipped  int
	// heads are the last events, as a ring. A line that follows one of them proves that all lines in
	// between were inserted.
	heads []head
	seen  bool // the recorded last event is in the log
	lines int
	last  []byte // text of good
}

// position is a line.
type position struct {
	file    string
	line    int
	text    []byte // up to maxText bytes
	whole   bool   // the text is a JSON document
	link    Link
	slot    slot
	chained bool
	ordinal int
}

// head is a former end of the chain, with the number of findings and events up to there.
type head struct {
	at               position
	findings, events int
}

// NewVerifier returns a verifier. record is the agent's record, or nil. from is the last event
// before the first line, or the zero link if it is unknown.
func NewVerifier(record *Record, from Link) *Verifier {
	v := &Verifier{record: record}
	if from.Number > 0 {
		v.good = &position{link: from}
	}
	return v
}

// Events returns the number of events in the chain so far.
func (v *Verifier) Events() int { return v.report.Events }

// File counts a file of the log.
func (v *Verifier) File() { v.report.Files++ }

// Fault adds a finding about a file.
func (v *Verifier) Fault(file, detail string) {
	v.found(Finding{Kind: FoundFile, File: file, Detail: detail})
}

// Line adds the next line, without LF.
func (v *Verifier) Line(file string, number int, line []byte) {
	v.lines++
	p := position{file: file, line: number, ordinal: v.lines, link: Link{Hash: HashOf(line)}}
	if p.slot, p.chained = slotOf(line); p.chained {
		p.link.Number = p.slot.number
	}
	p.text = line // copied if it is stored
	switch {
	case !p.chained:
		v.suspect(p)
	case v.good == nil:
		v.begin(p, line)
	case v.follows(p, v.good.link):
		v.resolve(p)
		v.accept(p, line)
	default:
		v.broken(p, line)
	}
}

// follows reports whether a line is the next one after a link.
func (v *Verifier) follows(p position, l Link) bool {
	return p.chained && p.slot.previous == l.Hash && p.slot.number == l.Number+1
}

// suspect stores a line that does not continue the chain.
func (v *Verifier) suspect(p position) {
	p.whole = p.chained || json.Valid(p.text)
	p.text = slices.Clone(p.text[:min(len(p.text), maxText)])
	if len(v.suspects) < maxSuspects {
		v.suspects = append(v.suspects, p)
		return
	}
	v.skipped++
	v.suspects[maxSuspects-1] = p // the last one may continue the chain
}

// begin accepts the first event.
func (v *Verifier) begin(p position, line []byte) {
	n := len(v.suspects)
	if n > 0 && (p.slot.number == 1 && p.slot.start == StartPlain) &&
		(v.skipped > 0 || p.slot.previous == v.suspects[n-1].link.Hash) {
		v.report.Plain, v.suspects, v.skipped = n+v.skipped, nil, 0
	}
	v.inserted()
	v.report.First, v.first = p.slot.number, p
	v.first.text = slices.Clone(line[:min(len(line), maxText)])
	if p.slot.number == 1 && p.slot.previous != (Hash{}) && v.report.Plain == 0 {
		v.found(Finding{Kind: FoundMissing, File: p.file, Line: p.line, Time: timeOf(line),
			Detail: "the lines before the first event are missing"})
	}
	v.accept(p, line)
}

// accept makes a line the end of the chain.
func (v *Verifier) accept(p position, line []byte) {
	if r := v.record; r != nil && p.link.Number == r.Last.Number {
		v.seen = true
		if p.link.Hash != r.Last.Hash {
			v.found(Finding{Kind: FoundChanged, File: p.file, Line: p.line, Number: p.link.Number, Time: timeOf(line),
				Detail: "the line differs from the agent's record of its last event"})
		}
	}
	if p.slot.start != "" {
		v.report.Starts++
	}
	p.text = nil
	v.good = &p
	v.last = append(v.last[:0], line...)
	v.report.Events++
	h := head{p, len(v.report.Findings), v.report.Events}
	if len(v.heads) < maxHeads {
		v.heads = append(v.heads, h)
	} else {
		v.heads[v.report.Events%maxHeads] = h
	}
}

// resolve reports the suspects before a line that continues the chain: the agent did not write
// them. An agent that was killed within a write leaves one incomplete line.
func (v *Verifier) resolve(p position) {
	if len(v.suspects) == 1 && v.skipped == 0 && p.slot.start != "" && !v.suspects[0].whole {
		v.report.Cut++
		v.suspects = nil
	}
	v.inserted()
}

// inserted reports the suspects as inserted lines.
func (v *Verifier) inserted() {
	for i := 0; i < len(v.suspects); {
		s := v.suspects[i]
		n := 1
		for i+n < len(v.suspects) && v.suspects[i+n].file == s.file {
			n++
		}
		i += n
		if i == len(v.suspects) {
			n += v.skipped
		}
		v.foundInserted(s, n)
	}
	v.suspects, v.skipped = nil, 0
}

func (v *Verifier) foundInserted(s position, n int) {
	if n == 1 && !s.whole {
		v.found(Finding{Kind: FoundIncomplete, File: s.file, Line: s.line, Lines: n,
			Detail: "the line is cut, or it is no event"})
		return
	}
	detail := "the agent did not write this line here"
	if n > 1 {
		detail = "the agent did not write these " + lines(n) + " here"
	}
	v.found(Finding{Kind: FoundInserted, File: s.file, Line: s.line, Lines: n, Time: timeOf(s.text), Detail: detail})
}

// broken handles an event that does not follow the end of the chain.
func (v *Verifier) broken(p position, line []byte) {
	if slices.ContainsFunc(v.heads, func(h head) bool { return h.at.link == p.link }) {
		v.suspect(p) // a copy of an earlier event
		return
	}
	for _, h := range v.heads {
		if !v.follows(p, h.at.link) {
			continue
		}
		between := p.ordinal - h.at.ordinal - 1
		v.report.Findings = v.report.Findings[:min(h.findings, len(v.report.Findings))]
		v.report.Events, v.suspects, v.skipped = h.events, nil, 0
		v.heads = slices.DeleteFunc(v.heads, func(x head) bool { return x.at.ordinal > h.at.ordinal })
		v.found(Finding{Kind: FoundInserted, File: p.file, Line: p.line, Lines: between, Time: timeOf(line),
			Detail: fmt.Sprintf("the agent did not write the %s before this line, after line %d of %s", lines(between),
				h.at.line, h.at.file)})
		v.accept(p, line)
		return
	}
	if n := len(v.suspects); n > 0 && v.follows(p, v.suspects[n-1].link) {
		v.confirm(n - 1)
		v.accept(p, line)
		return
	}
	v.suspect(p)
}

// confirm reports a break before a suspect that has a successor, and makes it the end of the chain.
func (v *Verifier) confirm(i int) {
	s := v.suspects[i]
	before := *v.good
	v.suspects = v.suspects[:i]
	v.inserted()
	switch n := s.slot.number; {
	case n > before.link.Number+1:
		v.missing(s, before.link.Number+1, reason(s.slot.start))
	case n == before.link.Number+1 && before.line > 0:
		v.found(Finding{Kind: FoundChanged, File: before.file, Line: before.line, Number: before.link.Number,
			Time: timeOf(v.last), Detail: "the next event has the hash of another line"})
	case n == before.link.Number+1:
		v.found(Finding{Kind: FoundChanged, File: s.file, Line: s.line, Number: n, Time: timeOf(s.text),
			Detail: "the event has the hash of another previous line"})
	default:
		v.found(Finding{Kind: FoundMissing, File: s.file, Line: s.line, Number: n, Time: timeOf(s.text),
			Detail: fmt.Sprintf("the numbers begin again at %d after event %d%s", n, before.link.Number,
				after("; ", reason(s.slot.start)))})
	}
	v.accept(s, s.text)
}

// reason explains a start.
func reason(s Start) string {
	switch s {
	case StartNew:
		return "the agent found no earlier line"
	case StartPlain:
		return "the agent found lines without hashes"
	case StartUnrecorded:
		return "the agent had no record of its last event"
	case StartUnreadable:
		return "the agent could not read the end of the log"
	case StartChanged:
		return "the agent found another end of the log than it had recorded"
	}
	return ""
}

func after(separator, text string) string {
	if text == "" {
		return ""
	}
	return separator + text
}

// missing reports missing events before a line.
func (v *Verifier) missing(p position, from uint64, why string) {
	until := p.slot.number - 1
	v.found(Finding{Kind: FoundMissing, File: p.file, Line: p.line, Number: from, Until: until, Time: timeOf(p.text),
		Detail: events(from, until) + " missing before this line" + after("; ", why)})
}

func events(from, until uint64) string {
	if from == until {
		return fmt.Sprintf("event %d is", from)
	}
	return fmt.Sprintf("events %d to %d are", from, until)
}

func lines(n int) string {
	if n == 1 {
		return "line"
	}
	return fmt.Sprintf("%d lines", n)
}

func (v *Verifier) found(f Finding) {
	if len(v.report.Findings) >= maxFindings {
		v.report.More++
		return
	}
	v.report.Findings = append(v.report.Findings, f)
}

// Report returns the result after the last line. file is the active file. now is the agent's record
// after the last line was read, or nil if the agent does not run.
func (v *Verifier) Report(file string, now *Record) *Report {
	n := len(v.suspects)
	if r := v.record; n > 0 && v.good != nil && v.suspects[n-1].chained &&
		(r == nil && v.suspects[n-1].slot.number > v.good.link.Number ||
			r != nil && v.suspects[n-1].link == r.Last) {
		v.confirm(n - 1)
	}
	v.inserted()
	r := &v.report
	if v.good != nil {
		r.Last, r.Time = v.good.link, timeOf(v.last)
	}
	if rec := v.record; rec != nil {
		r.Compared = true
		first := rec.First
		if now != nil {
			first = max(first, now.First) // the limits may have removed more in the meantime
		}
		if r.First > first && first > 0 {
			v.missing(v.first, first, "the limits of the log have not removed them")
		}
		if !v.seen && rec.Last.Number > r.Last.Number {
			v.found(Finding{Kind: FoundMissing, File: file, Number: max(r.Last.Number+1, rec.First), Until: rec.Last.Number,
				Detail: events(max(r.Last.Number+1, rec.First), rec.Last.Number) + " missing at the end of the log"})
		}
	}
	if now != nil && r.Last.Number > max(now.Last.Number, now.Pending) && v.good.line > 0 {
		v.found(Finding{Kind: FoundInserted, File: v.good.file, Line: v.good.line, Number: r.Last.Number, Time: r.Time,
			Detail: fmt.Sprintf("the agent's last event is %d, so it did not write event %d", now.Last.Number, r.Last.Number)})
	}
	r.Intact = len(r.Findings) == 0
	if r.Findings == nil {
		r.Findings = []Finding{}
	}
	return r
}
