package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// AccessLogs is GET /v1/accesslogs, sorted by kind and name. Who may not look into everything sees
// the FIFOs of the dataplanes that he may look into.
type AccessLogs struct {
	Total int         `json:"total"`
	Items []LogStream `json:"items"`
	// AuditFile is where the audit log is, absent for who may not look into everything. It need not
	// exist.
	AuditFile string `json:"auditFile,omitempty"`
}

// Kinds of a [LogStream].
const (
	LogFIFO      = "fifo"
	LogReceiver  = "receiver"
	LogForwarder = "forwarder"
	LogFile      = "file"
	LogOTLP      = "otlp"
)

// LogStream is one way that lines of access logs take, with what became of them since the agent
// began with it. Lines pass two: the FIFO or receiver that they are read from, where Written are
// those that were handed on, and the file or collector behind it. Records for OpenTelemetry pass
// the last alone. Once nothing is under way In = Written + Spooled + InFlight + all Dropped.
type LogStream struct {
	Kind string `json:"kind"`
	Name string `json:"name"` // path of a FIFO or file, name of a receiver, address of a collector; unique for its kind
	// Mesh and Dataplane are whose lines those of a FIFO are, Backend is the name that the policy
	// gives the backend, if any.
	Mesh        string `json:"mesh,omitempty"`
	Dataplane   string `json:"dataplane,omitempty"`
	Backend     string `json:"backend,omitempty"`
	Destination string `json:"destination"`      // "file PATH", "tcp HOST:PORT" or "otlp HOST:PORT"
	Holder      string `json:"holder,omitempty"` // who beside the agent keeps a FIFO open; absent: nobody
	Open        bool   `json:"open,omitempty"`   // an Envoy has the FIFO open

	In       uint64            `json:"in"` // lines, as the next ones
	Written  uint64            `json:"written"`
	Spooled  uint64            `json:"spooled"`  // on disk, and wait for their collector
	InFlight uint64            `json:"inFlight"` // in memory
	Dropped  map[string]uint64 `json:"dropped"`  // by cause; never null

	BytesIn uint64 `json:"bytesIn"`
	// lines that ended with their writer and got their LF from the agent
	Unterminated uint64  `json:"unterminated,omitempty"`
	Oversize     uint64  `json:"oversize,omitempty"` // lines that are stored in several, since they are too long
	Repeated     uint64  `json:"repeated,omitempty"` // lines that were sent more than once
	SpoolBytes   uint64  `json:"spoolBytes,omitempty"`
	SpoolOldest  float64 `json:"spoolOldestSeconds,omitempty"` // age of the oldest line that waits
	Health       string  `json:"health,omitempty"`             // what is wrong and what to do; absent while all goes well
}

// LogLines sum up what became of the lines of access logs, in the status.
type LogLines struct {
	Streams  int               `json:"streams"`
	Read     uint64            `json:"read"`     // from FIFOs, receivers and over OTLP
	Written  uint64            `json:"written"`  // in files, or acknowledged by collectors
	Spooled  uint64            `json:"spooled"`  //
	InFlight uint64            `json:"inFlight"` //
	Dropped  map[string]uint64 `json:"dropped"`  // by cause; never null
}

// logLines sums up streams: what goes in counts where lines come from, what was written where they
// end.
func logLines(streams []LogStream) *LogLines {
	out := &LogLines{Streams: len(streams), Dropped: map[string]uint64{}}
	for i := range streams {
		s := &streams[i]
		if s.Kind == LogFIFO || s.Kind == LogReceiver || s.Kind == LogOTLP {
			out.Read += s.In
		}
		if s.Kind != LogFIFO { // whose lines the stream of the file or collector has written
			out.Written += s.Written
		}
		out.Spooled += s.Spooled
		out.InFlight += s.InFlight
		for cause, n := range s.Dropped {
			out.Dropped[cause] += n
		}
	}
	return out
}

// logStreams returns the streams that the sender may see.
func (s *Server) logStreams(r *http.Request) []LogStream {
	if s.opts.AccessLogs == nil {
		return nil
	}
	visible, whole := s.visible(r, access.VerbInspect), s.may(r, access.VerbInspect, resource.Key{})
	return only(s.opts.AccessLogs(), func(x LogStream) resource.Key {
		return resource.Key{Kind: kindDataplane, Mesh: x.Mesh, Name: x.Dataplane}
	}, func(k resource.Key) bool {
		return whole || k.Mesh != "" && k.Name != "" && visible(k) // what is behind the FIFOs has lines of all
	})
}

func (s *Server) accessLogs(w http.ResponseWriter, r *http.Request) *Error {
	out := AccessLogs{Items: s.logStreams(r)}
	out.Total = len(out.Items)
	if out.Items == nil {
		out.Items = []LogStream{}
	}
	if s.may(r, access.VerbInspect, resource.Key{}) {
		out.AuditFile = s.opts.AuditFile
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}

// flushTime bounds how long an Envoy is waited for.
const flushTime = 5 * time.Second

// flushLogs is POST /v1/accesslogs/flush?mesh=&dataplane=.
func (s *Server) flushLogs(w http.ResponseWriter, r *http.Request) *Error {
	q := r.URL.Query()
	k := resource.Key{Kind: kindDataplane, Mesh: q.Get("mesh"), Name: q.Get("dataplane")}
	switch {
	case k.Mesh == "":
		return invalidQuery("mesh", "", "name the mesh of the dataplane")
	case k.Name == "":
		return invalidQuery("dataplane", "", "name the dataplane whose Envoy is to write its logs")
	}
	if e := s.can(r, access.VerbInspect, k); e != nil {
		return e
	}
	known := false
	var err error
	if s.opts.FlushLogs != nil {
		ctx, cancel := context.WithTimeout(r.Context(), flushTime)
		defer cancel()
		known, err = s.opts.FlushLogs(ctx, k.Mesh, k.Name)
	}
	switch {
	case !known:
		return notFound("no Envoy of %s logs through this agent", k)
	case err != nil:
		return problem(http.StatusServiceUnavailable, ProblemNotReady, "Envoy did not answer",
			"the Envoy of %s could not be made to write its logs: %s", k, err.Error())
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
