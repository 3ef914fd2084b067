package store

// Kinds of sources.
const (
	SourceFile  = "file"  // Detail: path of the file
	SourceAPI   = "api"   // Detail: ""
	SourceEnvoy = "envoy" // Detail: node id
	// Of other nodes.
	SourceGossip = "gossip" // what operators have written on another node; Detail: its name
	SourcePeer   = "peer"   // what belongs to another node; Detail: its name
)

// Source is where a resource comes from. Two sources are the same when both fields are.
type Source struct {
	Kind   string `json:"kind"`             // SourceFile, SourceAPI or SourceEnvoy
	Detail string `json:"detail,omitempty"` // path of the file, "", node id
}

// Operators reports whether operators write what is of the source, here or on another node.
func (s Source) Operators() bool { return s.Kind == SourceAPI || s.Kind == SourceGossip }

// String returns "file:/etc/nearside/resources/a.yaml", "api", "envoy:default.web".
func (s Source) String() string {
	if s.Detail == "" {
		return s.Kind
	}
	return s.Kind + ":" + s.Detail
}

// yieldsTo reports whether what s owns may be changed by another source. All files have one reader,
// who decides between them, so a resource can move from one file to another without being deleted
// in between.
//
// What operators write is changed on any node. What is of this node takes precedence over what
// others say of theirs, and files over what operators wrote elsewhere.
func (s Source) yieldsTo(o Source) bool {
	switch s.Kind {
	case SourceFile:
		return o.Kind == SourceFile
	case SourceAPI:
		return o.Kind == SourceAPI || o.Kind == SourceGossip
	case SourceGossip:
		return o.Kind == SourceAPI || o.Kind == SourceGossip || o.Kind == SourceFile
	case SourcePeer:
		return o.Kind == SourcePeer || o.Kind == SourceFile || o.Kind == SourceEnvoy
	}
	return s == o
}
