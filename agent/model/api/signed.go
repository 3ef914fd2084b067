package api

// KeyVersions is the body of POST /v1/versions: the records whose next versions the sender makes
// and signs.
type KeyVersions struct {
	Items []Ref `json:"items"` // type is the exact kind
}

// NextVersions answers POST /v1/versions. The versions are valid for the agent that answered, for
// 10 s.
type NextVersions struct {
	Cluster string        `json:"cluster"`
	Node    string        `json:"node"`   // name
	NodeID  string        `json:"nodeId"` // hexadecimal
	Items   []NextVersion `json:"items"`  // in the order of the request
}

// NextVersion is what a signer needs to make the next version of a record.
type NextVersion struct {
	Ref
	HLC     string `json:"hlc"`     // date of the version, hexadecimal
	Lineage string `json:"lineage"` // the versions that it follows, in base64
	Exists  bool   `json:"exists"`
	// Content is the SHA-256 of the present body, hexadecimal, and Key the key that signed it.
	Content string `json:"content,omitempty"`
	Key     string `json:"key,omitempty"`
}

// SignedRecords is the body of POST /v1/records: signed versions, each in base64. They are stored
// completely or not at all. A request contains resources to store, or one deletion of a resource,
// or records of the pool that are no resources.
type SignedRecords struct {
	Records []string `json:"records"`
}

// MaxRecords bounds the records of one request.
const MaxRecords = 10_000
