package api

import "time"

// AccessLogs is GET /v1/accesslogs, sorted by kind and name. A sender without permission to inspect
// everything sees the FIFOs of the dataplanes that it may inspect.
type AccessLogs struct {
	Total int         `json:"total"`
	Items []LogStream `json:"items"`
	// Proxies are the accounts of the proxies that log through the agent, sorted by mesh, name, and
	// destination.
	Proxies []ProxyLog `json:"proxies"`
	// Gaps are the listeners that have no logger now.
	Gaps []LogGap `json:"gaps"`
	// AuditFile is the path of the audit log, which may not exist. It is absent without permission
	// to inspect everything.
	AuditFile string `json:"auditFile,omitempty"`
	// AuditChain is the agent's record of the audit log. It is absent if AuditFile is, or if the log
	// is not open.
	AuditChain *AuditChain `json:"auditChain,omitempty"`
}

// AuditChain is the agent's record of the audit log, whose events form a chain.
type AuditChain struct {
	First uint64 `json:"first"` // number of the first event that the limits have not removed
	Last  uint64 `json:"last"`  // number of the last event
	Hash  string `json:"hash"`  // SHA-256 of the line of the last event, without LF, in hex
	// Pending is the number of the last event that is being written.
	Pending uint64 `json:"pending,omitempty"`
}

// Kinds of a [LogStream].
const (
	LogFIFO      = "fifo"
	LogReceiver  = "receiver"
	LogForwarder = "forwarder"
	LogFile      = "file"
	LogOTLP      = "otlp"
)

// LogStream holds the counters of one stage of access log processing, since the agent started the
// stage. A line passes two stages: the FIFO or receiver that the agent reads, where Written counts
// lines passed on, and the file or collector that it writes. OpenTelemetry records pass only the
// second stage. When no line is in flight, In = Written + Spooled + InFlight + all Dropped.
type LogStream struct {
	Kind string `json:"kind"`
	// path of a FIFO or file, name of a receiver, or address of a collector; unique for its kind
	Name string `json:"name"`
	// Mesh and Dataplane identify the writer of a FIFO. Backend is the name of the backend in the
	// policy, if any.
	Mesh        string `json:"mesh,omitempty"`
	Dataplane   string `json:"dataplane,omitempty"`
	Backend     string `json:"backend,omitempty"`
	Destination string `json:"destination"` // "file PATH", "tcp HOST:PORT", or "otlp HOST:PORT"
	// process that holds the FIFO in addition to the agent; absent: none
	Holder string `json:"holder,omitempty"`
	Open   bool   `json:"open,omitempty"` // an Envoy has the FIFO open

	In       uint64            `json:"in"` // lines, like the next counters
	Written  uint64            `json:"written"`
	Spooled  uint64            `json:"spooled"`  // on disk, waiting for the collector
	InFlight uint64            `json:"inFlight"` // in memory
	Dropped  map[string]uint64 `json:"dropped"`  // by cause; never null

	BytesIn uint64 `json:"bytesIn"`
	// lines that ended with their writer and got their LF from the agent
	Unterminated uint64 `json:"unterminated,omitempty"`
	Oversize     uint64 `json:"oversize,omitempty"` // lines that were split because they are too long
	Repeated     uint64 `json:"repeated,omitempty"` // lines that were sent more than once
	// Refused connections of a receiver, because its limit of open connections was reached.
	Refused     uint64  `json:"refusedConnections,omitempty"`
	SpoolBytes  uint64  `json:"spoolBytes,omitempty"`
	SpoolOldest float64 `json:"spoolOldestSeconds,omitempty"` // age of the oldest spooled line
	// DirectoryChanges is how often the directory of the file, FIFO, or spool was removed, replaced,
	// or made unsafe, and was opened again.
	DirectoryChanges uint64 `json:"directoryChanges,omitempty"`
	Health           string `json:"health,omitempty"` // problem and remedy; absent if there is none
	// Full is the mount point of the full file system that makes a file or spool unwritable.
	Full string `json:"full,omitempty"`
}

// ListenerTraffic are counters of a listener since its Envoy started.
type ListenerTraffic struct {
	Connections uint64 `json:"connections"` // accepted
	Requests    uint64 `json:"requests"`    // HTTP requests with a response
}

// ProxyLog is the account of one proxy and one destination of its access logs. Requests and
// connections that the Envoy counted become lines of its logger. In = Written + InFlight + all
// Dropped, where Written counts the lines that the agent passed on to the destination; the stream
// of the destination says what became of them.
type ProxyLog struct {
	Mesh        string `json:"mesh"`
	Dataplane   string `json:"dataplane"`
	Destination string `json:"destination"` // "file PATH", "tcp HOST:PORT", or "otlp HOST:PORT"
	Listeners   int    `json:"listeners"`   // with a logger for the destination
	// Traffic of these listeners. It is null if the Envoy does not report it.
	Traffic *ListenerTraffic `json:"traffic"`
	// Logged are the writes of all file loggers of the Envoy, for all destinations: one for each line,
	// and rarely an empty one. It is null if the Envoy does not report it. More writes than In are in
	// the buffers of the Envoy, or are those of other files.
	Logged   *uint64           `json:"logged"`
	In       uint64            `json:"in"` // lines that the agent has read since it started
	Written  uint64            `json:"written"`
	InFlight uint64            `json:"inFlight"`
	Dropped  map[string]uint64 `json:"dropped"` // by cause; never null
}

// LogGap is a listener that was published without its logger, because the destination of the logger
// was not ready.
type LogGap struct {
	Mesh      string    `json:"mesh"`
	Dataplane string    `json:"dataplane"`
	Listener  string    `json:"listener"`
	Reason    string    `json:"reason"`
	Since     time.Time `json:"since"`
	// Traffic since then, of which no line is in the log. It is null if the Envoy does not report it.
	Traffic *ListenerTraffic `json:"traffic"`
}

// LogLines sums up the lines of access logs in the status.
type LogLines struct {
	Streams  int               `json:"streams"`
	Read     uint64            `json:"read"`     // from FIFOs, from receivers, and over OTLP
	Written  uint64            `json:"written"`  // in files, or acknowledged by collectors
	Spooled  uint64            `json:"spooled"`  //
	InFlight uint64            `json:"inFlight"` //
	Dropped  map[string]uint64 `json:"dropped"`  // by cause; never null
	// SpoolOldest is the age of the oldest line that waits for a collector, in seconds.
	SpoolOldest float64 `json:"spoolOldestSeconds,omitempty"`
	Refused     uint64  `json:"refusedConnections,omitempty"` // of senders, at the limits of receivers
	// Unlogged is the traffic of listeners while they had no logger, since the agent started, as far
	// as the Envoys report it.
	Unlogged ListenerTraffic `json:"unlogged,omitzero"`
}
