package api

import (
	"encoding/json"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// States of members.
const (
	MemberAlive = "alive"
	MemberDead  = "dead"
	MemberLeft  = "left"
	// MemberRefused means that the node is alive, and that this node does not use it.
	MemberRefused = "refused"
)

// Member is a node of the pool.
type Member struct {
	Name    string    `json:"name"`
	ID      string    `json:"id"` // permanent; of a node with a key, the fingerprint of the key
	Zone    string    `json:"zone"`
	Version string    `json:"version"` // of its agent
	Address string    `json:"address"`
	State   string    `json:"state"` // [MemberAlive], [MemberDead], [MemberLeft], or [MemberRefused]
	Since   time.Time `json:"since"` // when State began, as seen by this node
	Self    bool      `json:"self"`
	InSync  bool      `json:"inSync"` // it has the resources of this node
	Ahead   float64   `json:"ahead"`  // seconds by which its clock is ahead
	// Revision identifies its resources when it was last asked: nodes with the same revision have
	// the same resources. Lag is for how many seconds its resources have differed from those of
	// this node.
	Revision string  `json:"revision"`
	Lag      float64 `json:"lag"`
	// AgentLost says that only the agent of a dead node is down: dataplanes of the node respond.
	AgentLost bool `json:"agentLost,omitempty"`
	// Incompatible says that the node has no protocol version in common with this one.
	Incompatible bool `json:"incompatible,omitempty"`
	// PacketsLost says that UDP to the node is blocked, so messages use TCP.
	PacketsLost bool `json:"packetsLost,omitempty"`
	// Files compares its file resources with those of this node. It is absent for this node, and
	// for a node that does not publish its file resources.
	Files *MemberFiles `json:"files,omitempty"`
	// Signed says that the node has proven that ID is the fingerprint of its key. Nodes of earlier
	// releases have no key.
	Signed bool `json:"signed"`
	// Reason says why the node is refused.
	Reason string `json:"reason,omitempty"`
}

// Lives reports whether the node runs: it is alive, or it responds and is refused.
func (m *Member) Lives() bool {
	return m.Self || m.State == MemberAlive || m.State == MemberRefused
}

// MemberFiles are the differences between the file resources of two nodes. Dataplanes and other
// resources that belong to a node are not compared.
type MemberFiles struct {
	Total int              `json:"total"`
	Items []FileDifference `json:"items"` // the first 20, sorted by type, mesh, and name
}

// FileDifference is a resource in files that is not equal on two nodes.
type FileDifference struct {
	Type  string `json:"type"`
	Mesh  string `json:"mesh,omitempty"`
	Name  string `json:"name"`
	State string `json:"state"` // [FileDiffers], [FileMissingHere], or [FileMissingThere]
}

// States of a [FileDifference].
const (
	FileDiffers      = "differs"
	FileMissingHere  = "missingHere"
	FileMissingThere = "missingThere"
)

// Members is the answer of /v1/members.
type Members struct {
	Items []Member `json:"items"`
}

// Join is the body of POST /v1/members/join.
type Join struct {
	Addresses []string `json:"addresses"` // HOST:PORT
}

// Joined says whether a member responded at an address.
type Joined struct {
	Address string `json:"address"`
	Reached bool   `json:"reached"`
}

// JoinedList answers POST /v1/members/join.
type JoinedList struct {
	Items []Joined `json:"items"`
}

// Forget is the body of POST /v1/members/forget.
type Forget struct {
	Node string `json:"node"` // name or id
}

// PoolHeal is the body of POST /v1/members/heal.
type PoolHeal struct {
	Evict        []string `json:"evict,omitempty"`        // names of nodes, or IDs of nodes or keys
	PurgeUnknown bool     `json:"purgeUnknown,omitempty"` // drop records of kinds that this agent does not know
	DryRun       bool     `json:"dryRun,omitempty"`       // only describe the effect
	// Era restores what the signed heal of an era voided. The other fields must be empty.
	Era int `json:"era,omitempty"`
}

// Results of a voided resource.
const (
	VoidRestored = "restored" // its last valid version is in force again
	VoidDropped  = "dropped"
	VoidFailed   = "failed" // the last valid version could not be written
)

// PoolVoid is a resource whose version a heal has voided.
type PoolVoid struct {
	Ref
	Result   string `json:"result"`
	Revision uint64 `json:"revision,omitempty"` // of the restored version
	Reason   string `json:"reason,omitempty"`
}

// PoolHealed answers POST /v1/members/heal.
type PoolHealed struct {
	Era       int        `json:"era"`
	DryRun    bool       `json:"dryRun,omitempty"`
	Statement string     `json:"statement,omitempty"` // body of the record to sign
	Owners    []string   `json:"owners,omitempty"`    // nodes and directories that were evicted
	Older     []string   `json:"older,omitempty"`     // live nodes whose version does not know eras
	Items     []PoolVoid `json:"items"`
}

// Conflict is a version of a resource that lost to a concurrent write.
type Conflict struct {
	ID      string    `json:"id"`
	State   string    `json:"state"` // ConflictLost, ConflictLimbo, or ConflictHeld
	Deleted bool      `json:"deleted,omitempty"`
	Written time.Time `json:"written"`
	Node    string    `json:"node"` // that wrote the version
	Author  Author    `json:"author,omitzero"`
	Seen    time.Time `json:"seen,omitzero"`    // when this node detected the conflict
	Reason  string    `json:"reason,omitempty"` // why it cannot be restored on this node

	Key      resource.Key       `json:"-"`
	Resource *resource.Resource `json:"-"`
}

// States of a [Conflict].
const (
	ConflictLost = "lost" // to a concurrent version of another node
	// a node that was away for long has it, and it may have been deleted in the meantime
	ConflictLimbo = "limbo"
	ConflictHeld  = "held" // a deletion that waits until the mesh is empty
)

// ConflictItem is a conflict in an answer.
type ConflictItem struct {
	Conflict
	Type     string          `json:"type"`
	Mesh     string          `json:"mesh,omitempty"`
	Name     string          `json:"name"`
	Resource json.RawMessage `json:"resource,omitempty"` // absent if only other nodes list it
	// FoundOn are the nodes that list it, with allNodes. Commands about it run on one of them.
	FoundOn []string `json:"foundOn,omitempty"`
}

// NewConflictItem returns a conflict without its resource.
func NewConflictItem(c Conflict) ConflictItem {
	return ConflictItem{Conflict: c, Type: c.Key.Kind, Mesh: c.Key.Mesh, Name: c.Key.Name}
}

// Conflicts is the answer of GET /v1/conflicts.
type Conflicts struct {
	Items []ConflictItem `json:"items"`
	// Nodes is how many live nodes were asked with allNodes, including this one. Unanswered are
	// those that sent no complete answer. Unasked are not alive.
	Nodes      int        `json:"nodes,omitempty"`
	Unanswered []LateNode `json:"unanswered,omitempty"`
	Unasked    []string   `json:"unasked,omitempty"`
}

// NodeConflicts are the conflicts that another node lists.
type NodeConflicts struct {
	Node    string
	Items   []ConflictItem
	Missing string // why the list is incomplete; "" if it is complete
}

// RestoreConflict is the body of POST /v1/conflicts/restore.
type RestoreConflict struct {
	ID     string `json:"id"`
	DryRun bool   `json:"dryRun,omitempty"`
}

// Publication is the published version of a directory. It is not part of the API.
type Publication struct {
	Node   string // name of the node that published it
	Commit string // "" if unknown
	Author string // of the commit; "" if unknown
}
