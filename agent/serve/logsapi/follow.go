package logsapi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/nearside-mesh/nearside/agent/answer/traffic"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Limits of senders that follow logs.
const (
	followers  = 8               // at a time
	followTime = 5 * time.Minute // after which a sender asks again, with its permissions of then
)

// changed is the value of [api.LogEnd].More if the sender may no longer read one of the files, or
// the file is no longer a log.
const changed = "changed"

// follow writes the lines of files, and waits for more until the sender ends the request, the
// limit, or followTime.
func (l *Logs) follow(w http.ResponseWriter, r *http.Request, q *query, paths []string,
	permits func(string, resource.Key) bool) *api.Error {
	select {
	case l.readers <- struct{}{}:
		defer func() { <-l.readers }()
	default:
		w.Header().Set("Retry-After", "5")
		return api.NewError(http.StatusTooManyRequests, api.ProblemLimited, "Too many requests",
			"%d clients follow logs, which is the limit; repeat the request when one has ended", followers)
	}
	ctx, cancel := context.WithTimeout(r.Context(), followTime)
	defer cancel()
	var end api.LogEnd
	note := func(text string) {
		if len(end.Notes) < maxNotes {
			end.Notes = append(end.Notes, text)
		}
	}
	out := &lines{w: w, left: q.limit, deadline: deadline(w),
		flush: func() { _ = http.NewResponseController(w).Flush() }} // unsupported by test writers
	formats := l.formats(q, paths)
	w.Header().Set("Content-Type", "application/x-ndjson")
	// The deadline for reading the request would end it.
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	out.deadline()
	out.flush() // the sender learns that the request is accepted before there are lines
	err := traffic.Show(ctx, traffic.ShowOptions{Paths: slices.Clone(paths), Follow: true, JSON: true, Filter: q.filter,
		Formats: formats, Workers: 1, Out: out, Note: note,
		Failed: func(path string, err error) { note(fmt.Sprintf("%s: not read: %v", path, err)) },
		More: func() []string {
			now, _, e := l.files(q, permits)
			if e != nil || slices.ContainsFunc(paths, func(p string) bool { return !slices.Contains(now, p) }) {
				end.More = changed
				cancel()
				return nil
			}
			if !slices.Equal(now, paths) {
				maps.Copy(formats, l.formats(q, now))
				paths = now
			}
			return now
		}})
	switch {
	case errors.Is(err, errLimit):
		end.More = "limit"
	case end.More == "" && errors.Is(ctx.Err(), context.DeadlineExceeded):
		end.More = "time"
	}
	end.Lines = out.count
	out.end(end)
	return nil
}

// deadline returns a function that extends the time for the next write.
func deadline(w http.ResponseWriter) func() {
	return func() {
		// unsupported by test writers
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTime))
	}
}
