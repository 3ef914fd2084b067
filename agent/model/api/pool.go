package api

import "time"

// PoolView is GET /v1/pool: the pool as one node sees it.
type PoolView struct {
	Nodes     []PoolNode `json:"nodes"`
	Conflicts int        `json:"conflicts"` // on this node
	Time      time.Time  `json:"time"`
}

// PoolNode is a member of the pool, with what it reports about itself.
type PoolNode struct {
	Member
	Clock  float64 `json:"clock"`            // seconds by which its clock is ahead
	Signer string  `json:"signer,omitempty"` // fingerprint of its key
	// Proxies, Problems, and Conflicts are those of [PoolState], or null if the node has not reported.
	Proxies   *int   `json:"proxies"`
	Problems  *int   `json:"problems"`
	Conflicts *int   `json:"conflicts"`
	Error     string `json:"error,omitempty"` // why it has not reported, or is refused
}

// PoolState is what a node reports about itself.
type PoolState struct {
	Proxies   int `json:"proxies"`   // connected
	Problems  int `json:"problems"`  // of its status
	Conflicts int `json:"conflicts"` // that it knows
}

// PoolQuestion asks another node for its [PoolState].
type PoolQuestion struct {
	Ask string `json:"ask"` // AskPool
}

// AskPool marks a [PoolQuestion].
const AskPool = "pool"
