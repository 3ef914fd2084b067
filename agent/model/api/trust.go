package api

import "time"

// Trust is the answer of GET /v1/trust.
type Trust struct {
	Mode       string `json:"mode"`       // the stricter one of the config and the trust file
	ConfigMode string `json:"configMode"` // trust.mode
	Admit      string `json:"admit"`      // "key" or "enrolled"
	Cluster    string `json:"cluster"`
	Node       string `json:"node"` // name of this node
	// Anchored says that the node accepts its first trust file only from its operator.
	Anchored bool       `json:"anchored,omitempty"`
	File     *TrustFile `json:"file,omitempty"` // in force; absent: none
	// Nodes are the nodes whose data this node has, sorted by name.
	Nodes []TrustNode `json:"nodes"`
	// Refused are data that their signers may not write: up to 100, sorted. They are in force unless
	// the mode is enforce. Total is the number of all of them.
	Refused []TrustRefusal `json:"refused"`
	Total   int            `json:"total"`
	// Unsigned is the number of records without a signature.
	Unsigned int `json:"unsigned"`
	// Expiring are keys and enrollments that expire within 30 days, or have expired.
	Expiring []TrustExpiry `json:"expiring,omitempty"`
	Problems []string      `json:"problems,omitempty"` // each with its remedy
}

// TrustFile is a trust file in force.
type TrustFile struct {
	Version   uint64      `json:"version"`
	Mode      string      `json:"mode"`
	Threshold int         `json:"threshold"` // number of roots that must sign the next file
	Roots     []TrustKey  `json:"roots"`
	Keys      []TrustKey  `json:"keys"`
	Revoked   []TrustKey  `json:"revoked,omitempty"`
	From      string      `json:"from"`  // how the node got its first trust file: "pool", "file", or "api"
	Since     time.Time   `json:"since"` // when it got that
	Text      string      `json:"text"`  // the document with its signatures
	Roles     []TrustRole `json:"roles"`
}

// TrustKey is a key of a trust file.
type TrustKey struct {
	Name      string    `json:"name,omitempty"`
	ID        string    `json:"id"` // fingerprint
	Role      string    `json:"role,omitempty"`
	NotBefore time.Time `json:"notBefore,omitzero"`
	NotAfter  time.Time `json:"notAfter,omitzero"`
	Since     time.Time `json:"since,omitzero"` // of a revocation
}

// TrustRole is a role of a trust file.
type TrustRole struct {
	Name     string   `json:"name"`
	Kinds    []string `json:"kinds"`
	Meshes   []string `json:"meshes,omitempty"`
	Names    []string `json:"names,omitempty"`
	Verbs    []string `json:"verbs"`
	Features []string `json:"features,omitempty"`
}

// TrustNode is the trust in a node.
type TrustNode struct {
	Name     string    `json:"name"`
	ID       string    `json:"id"`
	Zone     string    `json:"zone,omitempty"`
	Live     bool      `json:"live"`               // it is a member that is alive
	Signed   bool      `json:"signed"`             // the node signs its data
	Enrolled bool      `json:"enrolled"`           // it has a valid enrollment
	Services []string  `json:"services,omitempty"` // of the enrollment
	NotAfter time.Time `json:"notAfter,omitzero"`  // of the enrollment
	Role     string    `json:"role,omitempty"`     // of writes of users of its API
	Reason   string    `json:"reason,omitempty"`   // why its data are not in force with mode enforce
}

// TrustRefusal is a record, an item, or all items of a node or directory that their signer may not
// write.
type TrustRefusal struct {
	Type   string `json:"type"` // "Node" or "Directory" for all items of an owner
	Mesh   string `json:"mesh,omitempty"`
	Name   string `json:"name"`
	Node   string `json:"node,omitempty"` // name of the node that wrote it
	Signer string `json:"signer,omitempty"`
	Reason string `json:"reason"`
}

// TrustExpiry is a key or an enrollment that expires soon.
type TrustExpiry struct {
	Name     string    `json:"name"` // such as "key alice" or "enrollment of node web-1"
	NotAfter time.Time `json:"notAfter"`
}

// TrustAnchor is the body of POST /v1/trust/anchor.
type TrustAnchor struct {
	File string `json:"file"`
}

// TrustRecords is the answer of GET /v1/trust/records.
type TrustRecords struct {
	Items []TrustRecord `json:"items"`
}

// TrustRecord is a record of the pool, in its encoded form unless that has secrets.
type TrustRecord struct {
	Ref
	ID      string `json:"id"`               // in the list keep of a revocation
	Signer  string `json:"signer,omitempty"` // fingerprint of the key; absent: unsigned
	Reason  string `json:"reason,omitempty"` // why it is not in force with mode enforce
	InForce bool   `json:"inForce"`
	// Record is in base64. It is absent if the resource contains secrets, or if this agent cannot
	// tell.
	Record string `json:"record,omitempty"`
}
