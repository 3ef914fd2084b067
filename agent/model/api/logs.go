package api

// LogEnd is the last line of the answer to GET /v1/logs: {"end": LogEnd}.
type LogEnd struct {
	Lines int `json:"lines"` // that precede it
	// More says why there may be more lines: "limit" or "time"; absent if the answer is complete.
	More       string     `json:"more,omitempty"`
	Notes      []string   `json:"notes,omitempty"`      // lines and files that were left out, and why
	Unanswered []LateNode `json:"unanswered,omitempty"` // nodes without an answer, and why
}

// LogQuestion is a question about the logs of another node.
type LogQuestion struct {
	Ask   string `json:"ask"`   // AskLogs
	Query string `json:"query"` // of GET /v1/logs
}

// AskLogs marks a [LogQuestion].
const AskLogs = "logs"

// NodeAnswer is the answer of another node of the pool, or why there is none.
type NodeAnswer struct {
	Node    string
	Body    []byte
	Missing string
}

// LogStats is the answer to GET /v1/logs?by=: counts of access log lines by the value of a field.
type LogStats struct {
	By    string     `json:"by"`    // field
	Lines uint64     `json:"lines"` // that the filter selects
	First string     `json:"first,omitempty"`
	Last  string     `json:"last,omitempty"` // times of the first and the last line; absent if unknown
	Items []LogGroup `json:"items"`          // by number of lines, then by value
	// Unknown counts lines without a reliable value of the field, and Other those of values beyond the
	// first 1000.
	Unknown uint64  `json:"unknown,omitempty"`
	Other   uint64  `json:"other,omitempty"`
	End     *LogEnd `json:"end,omitempty"` // of an answer of the API
}

// LogGroup sums up the lines with one value of a field. Times are in milliseconds; they are exact
// to 1 %.
type LogGroup struct {
	Node      string            `json:"node,omitempty"` // of the pool, in an answer for all nodes
	Value     string            `json:"value"`
	Lines     uint64            `json:"lines"`
	PerSecond float64           `json:"perSecond"`
	Status    map[string]uint64 `json:"status"` // lines by class: "2xx", or "0" without a response; never null
	P50       *float64          `json:"p50,omitempty"`
	P95       *float64          `json:"p95,omitempty"`
	P99       *float64          `json:"p99,omitempty"` // absent if no line has a duration
	Received  uint64            `json:"received"`      // bytes
	Sent      uint64            `json:"sent"`
}
