package api

// Keyring is the answer of GET /v1/keyring: the keys that the live nodes of the pool have loaded.
// It contains fingerprints, never keys.
type Keyring struct {
	File  string `json:"file"`            // gossip.keyringFile of this node; "": the pool is not encrypted
	Error string `json:"error,omitempty"` // why this node keeps its previous keys after a change of the file
	// Items are the keys of this node in their order, and then those that only other nodes have.
	Items []PoolKey `json:"items"`
	// Nodes is how many live nodes were asked, including this one. Unanswered are those that did
	// not answer. Unasked are not alive.
	Nodes      int        `json:"nodes"`
	Unanswered []LateNode `json:"unanswered,omitempty"`
	Unasked    []string   `json:"unasked,omitempty"`
}

// PoolKey is a key of the pool.
type PoolKey struct {
	Fingerprint string   `json:"fingerprint"`
	Loaded      bool     `json:"loaded"`               // by the agent of this node
	Encrypts    bool     `json:"encrypts"`             // the messages of this node
	EncryptsOn  []string `json:"encryptsOn,omitempty"` // other nodes whose messages it encrypts
	MissingOn   []string `json:"missingOn,omitempty"`  // other nodes that do not have it
}
