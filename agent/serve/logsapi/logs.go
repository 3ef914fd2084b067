// Package logsapi serves the lines of log files over the API, and to other nodes of the pool: GET
// /v1/logs. An answer is a stream of JSON lines with bounded size and time. The sender needs the
// verb read-logs for each dataplane that writes to a file; other logs need it for the agent.
package logsapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/agent/answer/traffic"
	"github.com/nearside-mesh/nearside/agent/base/workers"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Options configures [Logs]. Functions are called concurrently.
type Options struct {
	Node      string                 // name of this node
	Streams   func() []api.LogStream // streams of access logs
	AuditFile string
	DNSFile   func() string // "" without a query log
	// Policies returns resources with log formats, as JSON.
	Policies func() []json.RawMessage
	// Others asks the other nodes of the pool. Nil: there is no pool.
	Others func(ctx context.Context, question []byte, each time.Duration) []api.NodeAnswer
	// Share answers questions of other nodes.
	Share bool
	Now   func() time.Time
}

// Limits of the work for queries.
const (
	atOnce     = 2                // queries of senders
	readTime   = 15 * time.Second // of a query
	answerTime = 7 * time.Second  // of a question of another node
	askTime    = 9 * time.Second  // for the answer of another node
	writeTime  = 30 * time.Second // for each write to the sender
	maxAnswer  = 900 << 10        // bytes of an answer to another node
)

// refused is the value of [api.LogEnd].More in the answer of a node that shares no logs.
const refused = "refused"

// Logs serves log files. It is safe for concurrent use.
type Logs struct {
	o       Options
	slots   chan struct{} // of senders
	answers chan struct{} // of other nodes
	readers chan struct{} // that follow logs
}

// New returns the server of log files.
func New(o Options) *Logs {
	return &Logs{o: o, slots: make(chan struct{}, atOnce), answers: make(chan struct{}, 1),
		readers: make(chan struct{}, followers)}
}

// may reports whether a sender has a permission.
type may func(verb string, k resource.Key) bool

func (m may) agent() bool { return m(access.VerbReadLogs, resource.Key{Kind: access.KindAgent}) }

func (m may) dataplane(mesh, name string) bool {
	return m(access.VerbReadLogs, resource.Key{Kind: "Dataplane", Mesh: mesh, Name: name})
}

// Serve is GET /v1/logs.
func (l *Logs) Serve(w http.ResponseWriter, r *http.Request, permits func(string, resource.Key) bool) *api.Error {
	q, e := parse(r.URL.Query(), l.o.Now())
	if e != nil {
		return e
	}
	paths, hidden, e := l.files(q, permits)
	if e != nil {
		return e
	}
	if q.all {
		switch {
		case l.o.Others == nil:
			return invalid("allNodes", "true", "this agent is not in a pool; omit it")
		case q.log == logAccess && !may(permits).dataplane(q.mesh, q.dataplane):
			return denied("all nodes are asked only about dataplanes of which you may read all logs; give mesh and dataplane")
		}
	}
	if q.follow {
		return l.follow(w, r, q, paths, permits)
	}
	select {
	case l.slots <- struct{}{}:
		defer func() { <-l.slots }()
	default:
		w.Header().Set("Retry-After", "1")
		return api.NewError(http.StatusTooManyRequests, api.ProblemLimited, "Too many requests",
			"%d queries of logs are in progress, which is the limit; repeat the request when one has ended", atOnce)
	}
	ctx, cancel := context.WithTimeout(r.Context(), readTime)
	defer cancel()
	out := &lines{w: w, left: q.limit, deadline: deadline(w)}
	if q.all {
		out.node = l.o.Node
	}
	var others []api.NodeAnswer
	var stats *api.LogStats
	var end api.LogEnd
	w.Header().Set("Content-Type", "application/x-ndjson")
	if q.by != "" {
		w.Header().Set("Content-Type", "application/json")
	}
	err := workers.Each(2, 2, func(_, i int) {
		switch {
		case i == 0:
			stats, end = l.read(ctx, q, paths, out)
			if hidden > 0 {
				end.Notes = append(end.Notes, fmt.Sprintf("files left out, because you may not read the logs of all their "+
					"writers: %d", hidden))
			}
		case q.all:
			question, _ := json.Marshal(api.LogQuestion{Ask: api.AskLogs, Query: r.URL.RawQuery}) // never fails
			others = l.o.Others(ctx, question, askTime)
		}
	})
	if err != nil {
		return api.NewError(http.StatusInternalServerError, api.ProblemGeneration, "Internal error", "reading logs failed")
	}
	if stats != nil {
		return writeStats(w, q, l.o.Node, stats, end, others)
	}
	writeLines(out, end, others)
	return nil
}

// writeLines writes the lines of other nodes, and the end.
func writeLines(out *lines, end api.LogEnd, others []api.NodeAnswer) {
	for i := range others {
		x := &others[i]
		body, theirs, reason := split(x)
		if reason != "" {
			end.Unanswered = append(end.Unanswered, api.LateNode{Name: x.Node, Reason: reason})
			continue
		}
		out.node = x.Node
		if _, err := out.Write(body); errors.Is(err, errLimit) {
			end.More = "limit"
		}
		if end.More == "" {
			end.More = theirs.More
		}
		for _, n := range theirs.Notes {
			end.Notes = append(end.Notes, x.Node+": "+n)
		}
	}
	end.Lines = out.count
	out.end(end)
}

// split separates the lines of another node from the end of its answer, and says why there is none.
func split(x *api.NodeAnswer) (body []byte, end api.LogEnd, missing string) {
	if x.Missing != "" {
		return nil, end, x.Missing
	}
	at := bytes.LastIndexByte(bytes.TrimSuffix(x.Body, []byte("\n")), '\n') + 1
	var last struct {
		End *api.LogEnd `json:"end"`
	}
	switch {
	case json.Unmarshal(x.Body[at:], &last) != nil || last.End == nil:
		return nil, end, "its answer is invalid, or its version does not answer this question"
	case last.End.More == refused:
		return nil, end, strings.Join(last.End.Notes, "; ")
	}
	return x.Body[:at], *last.End, ""
}

// writeStats writes counts, with those of other nodes.
func writeStats(w io.Writer, q *query, node string, s *api.LogStats, end api.LogEnd,
	others []api.NodeAnswer) *api.Error {
	if q.all {
		for i := range s.Items {
			s.Items[i].Node = node
		}
	}
	for i := range others {
		x := &others[i]
		body, theirs, reason := split(x)
		var got api.LogStats
		if reason == "" && json.Unmarshal(body, &got) != nil {
			reason = "its answer is invalid"
		}
		if reason != "" {
			end.Unanswered = append(end.Unanswered, api.LateNode{Name: x.Node, Reason: reason})
			continue
		}
		for j := range got.Items {
			got.Items[j].Node = x.Node
		}
		s.Items = append(s.Items, got.Items...)
		s.Lines, s.Unknown, s.Other = s.Lines+got.Lines, s.Unknown+got.Unknown, s.Other+got.Other
		if got.First != "" && (s.First == "" || got.First < s.First) {
			s.First = got.First
		}
		s.Last = max(s.Last, got.Last)
		if end.More == "" {
			end.More = theirs.More
		}
		for _, n := range theirs.Notes {
			end.Notes = append(end.Notes, x.Node+": "+n)
		}
	}
	s.End = &end
	_ = json.NewEncoder(w).Encode(s) // ignores a client that disconnected
	return nil
}

// Answer answers a question of another node, whose agent has checked the permissions of the sender.
// It returns nil for other questions.
func (l *Logs) Answer(ctx context.Context, question []byte) []byte {
	var x api.LogQuestion
	if len(question) > maxQuery || json.Unmarshal(question, &x) != nil || x.Ask != api.AskLogs {
		return nil
	}
	var buf bytes.Buffer
	out := &lines{w: &buf, bytes: maxAnswer}
	refuse := func(why string) []byte {
		out.end(api.LogEnd{More: refused, Notes: []string{why}})
		return buf.Bytes()
	}
	if !l.o.Share {
		return refuse("accessLog.share is not set there")
	}
	values, err := url.ParseQuery(x.Query)
	if err != nil {
		return refuse("the query is invalid there")
	}
	q, e := parse(values, l.o.Now())
	if e != nil {
		return refuse(e.Detail)
	}
	select {
	case l.answers <- struct{}{}:
		defer func() { <-l.answers }()
	default:
		return refuse("another query of logs is in progress there")
	}
	paths, _, e := l.files(q, func(_ string, k resource.Key) bool {
		if k.Kind == access.KindAgent {
			return q.log != logAccess
		}
		return (q.mesh == "" || k.Mesh == q.mesh) && (q.dataplane == "" || k.Name == q.dataplane)
	})
	if e != nil {
		return refuse(e.Detail)
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	out.left = q.limit
	stats, end := l.read(ctx, q, paths, out)
	if stats != nil {
		_ = json.NewEncoder(&buf).Encode(stats) // a buffer accepts all
	}
	end.Lines = out.count
	out.end(end)
	return buf.Bytes()
}

// files returns the files that a query reads. A file is left out unless the sender may read the
// logs of all dataplanes that write to it. withheld is the number of these files.
func (l *Logs) files(q *query, m may) (paths []string, withheld int, e *api.Error) {
	switch {
	case q.log != logAccess && !m.agent():
		return nil, 0, denied("the %s log requires the verb read-logs for the kind Agent", q.log)
	case q.log == logAudit:
		return []string{l.o.AuditFile}, 0, nil
	case q.log == logDNS:
		if path := l.o.DNSFile(); path != "" {
			return []string{path}, 0, nil
		}
		return nil, 0, api.NewNotFound("this agent has no DNS query log; see dns.queryLog")
	case q.dataplane != "" && !m.dataplane(q.mesh, q.dataplane):
		return nil, 0, denied("the logs of this dataplane require the verb read-logs for Dataplane %s/%s",
			q.mesh, q.dataplane)
	}
	hidden := map[string]bool{}
	streams := l.o.Streams()
	for i := range streams {
		s := &streams[i]
		path, ok := strings.CutPrefix(s.Destination, "file ")
		if !ok || s.Kind != api.LogFIFO && s.Kind != api.LogReceiver {
			continue
		}
		if s.Kind == api.LogFIFO && !m.dataplane(s.Mesh, s.Dataplane) || s.Kind == api.LogReceiver && !m.agent() {
			hidden[path] = true
		}
		if (q.mesh == "" || s.Mesh == q.mesh) && (q.dataplane == "" || s.Dataplane == q.dataplane) {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	paths = slices.Compact(paths)
	all := len(paths)
	paths = slices.DeleteFunc(paths, func(path string) bool { return hidden[path] })
	return paths, all - len(paths), nil
}

// read reads files for a query: lines into out, or counts.
func (l *Logs) read(ctx context.Context, q *query, paths []string, out *lines) (*api.LogStats, api.LogEnd) {
	var end api.LogEnd
	note := func(text string) {
		if len(end.Notes) < maxNotes {
			end.Notes = append(end.Notes, text)
		}
	}
	failed := func(path string, err error) { note(fmt.Sprintf("%s: not read: %v", path, err)) }
	formats := l.formats(q, paths)
	var stats *api.LogStats
	if q.by != "" {
		stats, _ = traffic.Stats(ctx, traffic.StatsOptions{Paths: paths, Filter: q.filter, Formats: formats, By: q.by,
			Step: q.step, Workers: 1, Note: note, Failed: failed}) // the field is valid
	} else {
		show := func(paths []string) error {
			return traffic.Show(ctx, traffic.ShowOptions{Paths: paths, Filter: q.filter, Formats: formats, Workers: 1,
				JSON: true, Out: out, Note: note, Failed: failed})
		}
		var err error
		if q.tail {
			err = out.tails(paths, show)
		} else {
			err = show(paths)
		}
		if errors.Is(err, errLimit) {
			end.More = "limit"
		}
	}
	if ctx.Err() != nil {
		end.More = "time"
	}
	end.Lines = out.count
	return stats, end
}

// formats returns the formats of files of access logs.
func (l *Logs) formats(q *query, paths []string) map[string]*traffic.Formats {
	formats := map[string]*traffic.Formats{}
	if q.log == logAccess {
		templates := traffic.Templates(l.o.Policies()...)
		for _, path := range paths {
			formats[path], _ = traffic.NewFormats(nil, templates)
		}
	}
	return formats
}

// maxNotes limits the notes of an answer.
const maxNotes = 64

func denied(format string, args ...any) *api.Error {
	return api.NewError(http.StatusForbidden, api.ProblemDenied, "Permission denied", format, args...)
}
