package audit

import (
	"encoding/hex"
	"encoding/json"
	"time"
)

// Stages of a request that produce an event. As in OpenShift's profiles, RequestReceived is
// omitted.
const (
	StageResponseStarted  = "ResponseStarted" // before a request waits
	StageResponseComplete = "ResponseComplete"
	StagePanic            = "Panic" // internal error
)

// Annotations of events.
const (
	AnnotationDecision = "authorization.k8s.io/decision" // "allow" or "forbid"
	AnnotationReason   = "authorization.k8s.io/reason"
	// "true" if a body was truncated or omitted because of its length
	AnnotationTruncated = "audit.k8s.io/truncated"
	AnnotationBytes     = "nearside.io/body-bytes"   // original lengths of truncated bodies
	AnnotationNoBody    = "nearside.io/body-omitted" // why a body is omitted
	AnnotationDryRun    = "nearside.io/dry-run"      // "true" for a dry run
	AnnotationResources = "nearside.io/resources"    // resources of a request for several
	// stored changes with revisions: "created MeshTimeout/default/slow@12"
	AnnotationChanges = "nearside.io/changes"
	// source of a change outside the API: "file:PATH" or "envoy:NODE"
	AnnotationSource = "nearside.io/source"
	// author whose signature is valid, with the key or the node: "alice (key alice)"
	AnnotationSigned = "nearside.io/signed-by"
	// a changed key of the agent's config: "auditLog.profile: None, before Default"
	AnnotationConfig  = "nearside.io/config"
	AnnotationDropped = "nearside.io/dropped" // number of events missing before this one
	AnnotationSince   = "nearside.io/dropped-since"
	AnnotationUntil   = "nearside.io/dropped-until"
	// number of earlier refused requests of the same user or address without an event
	AnnotationOmitted = "nearside.io/suppressed"
)

// Keys of User.Extra.
const (
	ExtraPID       = "nearside.io/pid"
	ExtraGID       = "nearside.io/gid"
	ExtraCgroup    = "nearside.io/cgroup"
	ExtraTransport = "nearside.io/transport" // "unix" or "tcp"
	ExtraTokenID   = "nearside.io/token-id"
	ExtraUID       = "nearside.io/uid" // of the process, if the user is that of a token
)

// Names of users that are not system users.
const (
	UserAnonymous = "system:anonymous" // over TCP without a valid token
	UserForeign   = "system:foreign"   // of another user namespace
	UserAgent     = "system:nearside"  // the agent itself
	UserFile      = "system:file:"     // followed by the path of a resource file
	UserNode      = "system:node:"     // followed by the node ID of an Envoy
	// UserGossip and UserPeer are followed by the name of another node: an operator has written the
	// resource there, or it belongs to that node.
	UserGossip = "system:gossip:"
	UserPeer   = "system:peer:"
	// UserPublished is followed by the ID of a published directory.
	UserPublished = "system:published:"
	// UserObserver is this node, for the state that it has observed of its Envoys.
	UserObserver = "system:node"
	UserUnknown  = "uid:" // followed by the number of a user without a name

	GroupAuthenticated   = "system:authenticated"
	GroupUnauthenticated = "system:unauthenticated"
)

// VerbDrop is the verb of the event that reports missing events.
const VerbDrop = "drop"

// Event is one event. [Event.Append] bounds and escapes its texts.
type Event struct {
	Level      Level
	ID         string // UUID, the same in all events of a request
	Stage      string
	RequestURI string
	Verb       string
	User       User
	SourceIPs  []string
	UserAgent  string
	Object     *ObjectRef // nil for requests without a resource
	Status     *Status    // nil: none
	// Request and Response are JSON bodies without secrets, or nil. If a body is truncated,
	// RequestBytes or ResponseBytes is its full length, else 0.
	Request, Response           json.RawMessage
	RequestBytes, ResponseBytes int
	Received                    time.Time
	At                          time.Time // time of the stage
	Annotations                 map[string]string
}

// User is the sender.
type User struct {
	Username string              `json:"username,omitempty"`
	UID      string              `json:"uid,omitempty"`
	Groups   []string            `json:"groups,omitempty"`
	Extra    map[string][]string `json:"extra,omitempty"`
}

// ObjectRef is the resource of a request. The namespace is the mesh.
type ObjectRef struct {
	Resource    string `json:"resource,omitempty"` // plural of the kind
	Mesh        string `json:"namespace,omitempty"`
	Name        string `json:"name,omitempty"`
	APIGroup    string `json:"apiGroup,omitempty"`
	APIVersion  string `json:"apiVersion,omitempty"`
	Revision    string `json:"resourceVersion,omitempty"`
	Subresource string `json:"subresource,omitempty"`
}

// Group and version of all resources, as in their Kubernetes form.
const (
	APIGroup   = "kuma.io"
	APIVersion = "v1alpha1"
)

// Status is the outcome.
type Status struct {
	Metadata struct{} `json:"metadata"`
	Status   string   `json:"status,omitempty"` // "Failure", or "" for a success
	Message  string   `json:"message,omitempty"`
	Reason   string   `json:"reason,omitempty"` // last element of the problem type
	Code     int      `json:"code"`
}

// ID formats random bytes as a UUID (RFC 9562, version 4).
func ID(b [16]byte) string {
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	h := hex.EncodeToString(b[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// Annotate sets an annotation.
func (e *Event) Annotate(key, value string) {
	if e.Annotations == nil {
		e.Annotations = map[string]string{}
	}
	e.Annotations[key] = value
}

// Dropped returns the event that reports missing events.
func Dropped(n int, since, until time.Time, id string) *Event {
	e := &Event{Level: LevelMetadata, ID: id, Stage: StageResponseComplete, Verb: VerbDrop,
		User: User{Username: UserAgent}, Received: since, At: until}
	e.Annotate(AnnotationDropped, decimal(n))
	e.Annotate(AnnotationSince, stamp(since))
	e.Annotate(AnnotationUntil, stamp(until))
	return e
}
