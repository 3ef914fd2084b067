package store

// Kinds of sources.
const (
	SourceFile  = "file"  // Detail: path of the file
	SourceAPI   = "api"   // Detail: ""
	SourceEnvoy = "envoy" // Detail: node id
	// SourceNode is what this node has observed about the Envoys here. A batch of SourceEnvoy may
	// contain such changes. Detail: ""
	SourceNode = "node"
	// Sources of other nodes.
	SourceGossip = "gossip" // written by operators on another node; Detail: its name
	SourcePeer   = "peer"   // owned by another node; Detail: its name
	// SourcePublished is a directory that a node of the pool publishes. Detail: its ID
	SourcePublished = "published"
)

// Source is the origin of a resource. Two sources are equal if both fields are.
type Source struct {
	Kind   string `json:"kind"`             // SourceFile, SourceAPI, or SourceEnvoy
	Detail string `json:"detail,omitempty"` // path of the file, "", or node id
}

// Operators reports whether operators write the resources of the source, here or on another node.
func (s Source) Operators() bool { return s.Kind == SourceAPI || s.Kind == SourceGossip }

// shadows reports whether resources of the source take precedence over those of operators on this
// node. Those of published directories do not, so that all nodes use the same ones.
func (s Source) shadows() bool { return !s.Operators() && s.Kind != SourcePublished }

// String returns "file:/etc/nearside/resources/a.yaml", "api", "envoy:default.web".
func (s Source) String() string {
	if s.Detail == "" {
		return s.Kind
	}
	return s.Kind + ":" + s.Detail
}

// YieldsTo reports whether another source may change the resources of s. One reader decides between
// all files, so a resource can move from one file to another without a deletion in between.
//
// Operators may change their resources on any node. Resources of this node take precedence over
// those that other nodes claim, and files over resources that operators wrote elsewhere. Files take
// precedence over published directories, but those of a directory yield to its published version.
func (s Source) YieldsTo(o Source) bool {
	switch s.Kind {
	case SourceFile:
		return o.Kind == SourceFile || o.Kind == SourcePublished
	case SourceAPI:
		return o.Kind == SourceAPI || o.Kind == SourceGossip
	case SourceGossip:
		return o.Kind == SourceAPI || o.Kind == SourceGossip || o.Kind == SourceFile
	case SourcePublished:
		return o.Kind == SourcePublished || o.Kind == SourceFile
	case SourceNode: // the owner of a Dataplane, and so of its state, may change
		return o.Kind == SourceNode || o.Kind == SourcePeer
	case SourcePeer:
		return o.Kind == SourceNode || o.Kind == SourcePeer || o.Kind == SourceFile || o.Kind == SourceEnvoy
	}
	return s == o
}
