package api

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
