package httpapi

import (
	"bytes"
	"net/http"
	"runtime/pprof"
	"slices"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/serve/httpjson"
	"github.com/nearside-mesh/nearside/agent/serve/sender"
)

// profiles are the available profiles of [pprof.Lookup]. They contain only function names and
// numbers.
var profiles = []string{"heap", "allocs", "goroutine", "threadcreate", "block", "mutex"}

// profileCPU is the CPU profile, which takes time.
const profileCPU = "cpu"

// maxProfile bounds the duration in seconds. It is shorter than the write timeout of a connection.
const maxProfile = 30

// profile is GET /v1/debug/pprof?profile=&seconds=: a profile of the agent for "go tool pprof".
func (s *Server) profile(w http.ResponseWriter, r *http.Request) *api.Error {
	name := r.URL.Query().Get("profile")
	if name == "" {
		name = "heap"
	}
	seconds, e := httpjson.Int(r, "seconds", 10, 1, maxProfile)
	if e != nil {
		return e
	}
	var out bytes.Buffer
	switch {
	case name == profileCPU:
		if err := pprof.StartCPUProfile(&out); err != nil {
			w.Header().Set("Retry-After", "1")
			return api.NewError(http.StatusTooManyRequests, api.ProblemLimited, "Too many requests",
				"another CPU profile is running; repeat the request later")
		}
		select {
		case <-time.After(time.Duration(seconds) * time.Second):
		case <-r.Context().Done():
		case <-s.stopping:
		}
		pprof.StopCPUProfile()
	case slices.Contains(profiles, name):
		if err := pprof.Lookup(name).WriteTo(&out, 0); err != nil {
			return api.NewError(http.StatusInternalServerError, api.ProblemInternal, "Internal error", "the profile: %v", err)
		}
	default:
		return httpjson.InvalidField("profile", "%.64q is not one of %s, %s", name, profileCPU, strings.Join(profiles, ", "))
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	_, _ = w.Write(out.Bytes()) // ignores a client that disconnected
	return nil
}

func (s *Server) logLevel(w http.ResponseWriter, _ *http.Request) *api.Error {
	if s.opts.Level == nil {
		return api.NewNotFound("the log level cannot be changed")
	}
	httpjson.Write(w, http.StatusOK, api.LogLevel{Level: strings.ToLower(s.opts.Level.Level().String())})
	return nil
}

// setLogLevel changes the level until the config is reloaded.
func (s *Server) setLogLevel(w http.ResponseWriter, r *http.Request) *api.Error {
	body, e := httpjson.Body(r)
	if e != nil {
		return e
	}
	var q api.LogLevel
	if e := httpjson.Decode(body, &q); e != nil {
		return e
	}
	levels := []string{"debug", "info", "warn", "error"}
	if !slices.Contains(levels, q.Level) {
		return httpjson.InvalidField("level", "%.64q is not one of %s", q.Level, strings.Join(levels, ", "))
	}
	if s.opts.Level == nil {
		return api.NewNotFound("the log level cannot be changed")
	}
	if err := s.opts.Level.UnmarshalText([]byte(q.Level)); err != nil {
		return httpjson.InvalidField("level", "%v", err)
	}
	s.log.Warn("api: the log level was changed until the next config reload",
		"level", q.Level, "author", sender.Of(r).Account())
	return s.logLevel(w, r)
}

// debug is GET /v1/debug/config and GET /v1/debug/log.
func (s *Server) debug(w http.ResponseWriter, r *http.Request) *api.Error {
	b, e := s.opts.Debug(r.PathValue("item"))
	if e != nil {
		return e
	}
	return httpjson.WriteText(w, b)
}
