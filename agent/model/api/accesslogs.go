package api

// AccessLogs is GET /v1/accesslogs, sorted by kind and name. A sender without permission to inspect
// everything sees the FIFOs of the dataplanes that it may inspect.
type AccessLogs struct {
	Total int         `json:"total"`
	Items []LogStream `json:"items"`
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
	Unterminated uint64  `json:"unterminated,omitempty"`
	Oversize     uint64  `json:"oversize,omitempty"` // lines that were split because they are too long
	Repeated     uint64  `json:"repeated,omitempty"` // lines that were sent more than once
	SpoolBytes   uint64  `json:"spoolBytes,omitempty"`
	SpoolOldest  float64 `json:"spoolOldestSeconds,omitempty"` // age of the oldest spooled line
	Health       string  `json:"health,omitempty"`             // problem and remedy; absent if there is none
}

// LogLines sums up the lines of access logs in the status.
type LogLines struct {
	Streams  int               `json:"streams"`
	Read     uint64            `json:"read"`     // from FIFOs, from receivers, and over OTLP
	Written  uint64            `json:"written"`  // in files, or acknowledged by collectors
	Spooled  uint64            `json:"spooled"`  //
	InFlight uint64            `json:"inFlight"` //
	Dropped  map[string]uint64 `json:"dropped"`  // by cause; never null
}
