package route

// LegacyConf is what a TrafficRoute says about the connections to a service.
type LegacyConf struct {
	Split        []LegacySplit     `json:"split,omitempty"`
	LoadBalancer *LoadBalancer     `json:"loadBalancer,omitempty"`
	Destination  map[string]string `json:"destination,omitempty"` // instead of split
	// HTTP is for services of HTTP: the first that takes a request decides.
	HTTP []LegacyHTTP `json:"http,omitempty"`
}

// LegacySplit is a share of the traffic, and the tags of the endpoints that get it. The value "*" stands for what the
// outbound has.
type LegacySplit struct {
	Weight      *uint32           `json:"weight,omitempty"`
	Destination map[string]string `json:"destination,omitempty"`
}

// LegacyHTTP says what happens to the requests that its match takes.
type LegacyHTTP struct {
	Match       *LegacyMatch      `json:"match,omitempty"`
	Modify      *LegacyModify     `json:"modify,omitempty"`
	Split       []LegacySplit     `json:"split,omitempty"`
	Destination map[string]string `json:"destination,omitempty"`
}

// LegacyMatch takes the requests for which all that it says is true.
type LegacyMatch struct {
	Method  *LegacyString           `json:"method,omitempty"`
	Path    *LegacyString           `json:"path,omitempty"`
	Headers map[string]LegacyString `json:"headers,omitempty"`
}

// LegacyString is about a text: exactly one of its fields.
type LegacyString struct {
	Prefix *string `json:"prefix,omitempty"`
	Exact  *string `json:"exact,omitempty"`
	Regex  *string `json:"regex,omitempty"`
}

// LegacyModify changes requests and responses.
type LegacyModify struct {
	Path            *LegacyPath    `json:"path,omitempty"`
	Host            *LegacyHost    `json:"host,omitempty"`
	RequestHeaders  *LegacyHeaders `json:"requestHeaders,omitempty"`
	ResponseHeaders *LegacyHeaders `json:"responseHeaders,omitempty"`
}

// LegacyPath changes the path: the prefix that was matched, or what a pattern matches.
type LegacyPath struct {
	RewritePrefix *string      `json:"rewritePrefix,omitempty"`
	Regex         *LegacyRegex `json:"regex,omitempty"`
}

// LegacyHost changes the host: to a value, or to something out of the path.
type LegacyHost struct {
	Value    *string      `json:"value,omitempty"`
	FromPath *LegacyRegex `json:"fromPath,omitempty"`
}

// LegacyRegex puts a substitution in the place of what a pattern matches, both in the syntax of RE2.
type LegacyRegex struct {
	Pattern      string `json:"pattern"`
	Substitution string `json:"substitution"`
}

// LegacyHeaders changes headers.
type LegacyHeaders struct {
	Add    []LegacyAdd    `json:"add,omitempty"`
	Remove []LegacyRemove `json:"remove,omitempty"`
}

// LegacyAdd sets a header, or with Append adds to it.
type LegacyAdd struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Append bool   `json:"append,omitempty"`
}

// LegacyRemove names a header.
type LegacyRemove struct {
	Name string `json:"name"`
}

// LoadBalancer says how requests are distributed over endpoints: at most one of its fields. Default round robin.
type LoadBalancer struct {
	RoundRobin   *struct{}     `json:"roundRobin,omitempty"`
	LeastRequest *LeastRequest `json:"leastRequest,omitempty"`
	RingHash     *RingHash     `json:"ringHash,omitempty"`
	Random       *struct{}     `json:"random,omitempty"`
	Maglev       *struct{}     `json:"maglev,omitempty"`
}

// LeastRequest takes the endpoint with the fewest requests of some that it looks at.
type LeastRequest struct {
	ChoiceCount uint32 `json:"choiceCount,omitempty"` // how many it looks at; default 2
}

// RingHash sends what has one hash to one endpoint.
type RingHash struct {
	HashFunction string `json:"hashFunction,omitempty"` // XX_HASH or MURMUR_HASH_2
	MinRingSize  uint64 `json:"minRingSize,omitempty"`  // default 1024
	MaxRingSize  uint64 `json:"maxRingSize,omitempty"`  // default 8388608
}
