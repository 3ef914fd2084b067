package httpapi

import (
	"bytes"
	"net/http"
	"runtime/pprof"
	"slices"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/api"
)

// profiles are those of [pprof.Lookup] that are given away: of memory, goroutines and waits. They
// hold names of functions and numbers alone.
var profiles = []string{"heap", "allocs", "goroutine", "threadcreate", "block", "mutex"}

// profileCPU is the one that takes a while.
const profileCPU = "cpu"

// maxProfile is the most seconds of one: less than a connection may take for an answer.
const maxProfile = 30

// profile is GET /v1/debug/pprof?profile=&seconds=: a profile of the agent, as "go tool pprof"
// reads it.
func (s *Server) profile(w http.ResponseWriter, r *http.Request) *api.Error {
	name := r.URL.Query().Get("profile")
	if name == "" {
		name = "heap"
	}
	seconds, e := intQuery(r, "seconds", 10, 1, maxProfile)
	if e != nil {
		return e
	}
	var out bytes.Buffer
	switch {
	case name == profileCPU:
		if err := pprof.StartCPUProfile(&out); err != nil {
			w.Header().Set("Retry-After", "1")
			return problem(http.StatusTooManyRequests, api.ProblemLimited, "Too many requests",
				"another CPU profile is being taken; repeat the request when it has ended")
		}
		select {
		case <-time.After(time.Duration(seconds) * time.Second):
		case <-r.Context().Done():
		case <-s.stopping:
		}
		pprof.StopCPUProfile()
	case slices.Contains(profiles, name):
		if err := pprof.Lookup(name).WriteTo(&out, 0); err != nil {
			return problem(http.StatusInternalServerError, api.ProblemInternal, "Internal error", "the profile: %v", err)
		}
	default:
		return invalidField("profile", "%.64q is none of %s, %s", name, profileCPU, strings.Join(profiles, ", "))
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	_, _ = w.Write(out.Bytes()) // who has gone does not read it
	return nil
}

func (s *Server) logLevel(w http.ResponseWriter, _ *http.Request) *api.Error {
	if s.opts.Level == nil {
		return notFound("the level of this log cannot be changed")
	}
	writeJSON(w, http.StatusOK, api.LogLevel{Level: strings.ToLower(s.opts.Level.Level().String())})
	return nil
}

// setLogLevel changes the level until the config is read again.
func (s *Server) setLogLevel(w http.ResponseWriter, r *http.Request) *api.Error {
	body, e := s.body(r)
	if e != nil {
		return e
	}
	var q api.LogLevel
	if e := decodeRequest(body, &q); e != nil {
		return e
	}
	levels := []string{"debug", "info", "warn", "error"}
	if !slices.Contains(levels, q.Level) {
		return invalidField("level", "%.64q is none of %s", q.Level, strings.Join(levels, ", "))
	}
	if s.opts.Level == nil {
		return notFound("the level of this log cannot be changed")
	}
	if err := s.opts.Level.UnmarshalText([]byte(q.Level)); err != nil {
		return invalidField("level", "%v", err)
	}
	s.log.Warn("api: the level of the log has changed until the config is read again",
		"level", q.Level, "author", peerOf(r).Account())
	return s.logLevel(w, r)
}
