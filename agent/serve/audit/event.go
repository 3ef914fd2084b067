package audit

import (
	"encoding/hex"
	"encoding/json"
	"time"
)

// Stages of a request in which an event is made. RequestReceived is left out, as in OpenShift's
// profiles.
const (
	StageResponseStarted  = "ResponseStarted" // of requests that wait: before they do
	StageResponseComplete = "ResponseComplete"
	StagePanic            = "Panic" // the request met an internal error
)

// Annotations of events.
const (
	AnnotationDecision  = "authorization.k8s.io/decision" // "allow" or "forbid"
	AnnotationReason    = "authorization.k8s.io/reason"
	AnnotationTruncated = "audit.k8s.io/truncated"   // "true" where a body was cut or left out for its length
	AnnotationBytes     = "nearside.io/body-bytes"   // lengths of the bodies that were cut, before
	AnnotationNoBody    = "nearside.io/body-omitted" // why there is no body though the level has one
	AnnotationDryRun    = "nearside.io/dry-run"      // "true": nothing was to be stored
	AnnotationResources = "nearside.io/resources"    // of a request about several: which
	// what was stored, with revisions: "created MeshTimeout/default/slow@12"
	AnnotationChanges = "nearside.io/changes"
	AnnotationSource  = "nearside.io/source"  // of what did not come over the API: "file:PATH" or "envoy:NODE"
	AnnotationDropped = "nearside.io/dropped" // events that are missing before this one
	AnnotationSince   = "nearside.io/dropped-since"
	AnnotationUntil   = "nearside.io/dropped-until"
	// refused requests of the same user or address before this one, of which no event was made
	AnnotationOmitted = "nearside.io/suppressed"
)

// Keys of User.Extra.
const (
	ExtraPID       = "nearside.io/pid"
	ExtraGID       = "nearside.io/gid"
	ExtraCgroup    = "nearside.io/cgroup"
	ExtraTransport = "nearside.io/transport" // "unix" or "tcp"
	ExtraTokenID   = "nearside.io/token-id"
	ExtraUID       = "nearside.io/uid" // of the process, where the user is that of a token
)

// Names of users that are no users of the system.
const (
	UserAnonymous = "system:anonymous" // over TCP without a token that is right
	UserForeign   = "system:foreign"   // of another user namespace
	UserAgent     = "system:nearside"  // the agent itself
	UserFile      = "system:file:"     // and the path of a resource file
	UserNode      = "system:node:"     // and the node id of an Envoy

	GroupAuthenticated   = "system:authenticated"
	GroupUnauthenticated = "system:unauthenticated"
)

// VerbDrop is that of the event that says how many are missing.
const VerbDrop = "drop"

// Event is one event. [Event.Append] bounds and escapes its texts.
type Event struct {
	Level      Level
	ID         string // a UUID, the same in all events of a request
	Stage      string
	RequestURI string
	Verb       string
	User       User
	SourceIPs  []string
	UserAgent  string
	Object     *ObjectRef // nil for what is not about a resource
	Status     *Status    // nil: none
	// Request and Response are bodies in JSON without secrets, nil for none. Of a longer body they may
	// be the beginning: RequestBytes and ResponseBytes are the lengths of the whole, 0 where it is all
	// there.
	Request, Response           json.RawMessage
	RequestBytes, ResponseBytes int
	Received                    time.Time
	At                          time.Time // of the stage
	Annotations                 map[string]string
}

// User is who asked.
type User struct {
	Username string              `json:"username,omitempty"`
	UID      string              `json:"uid,omitempty"`
	Groups   []string            `json:"groups,omitempty"`
	Extra    map[string][]string `json:"extra,omitempty"`
}

// ObjectRef is what a request is about. The mesh stands in the place of the namespace.
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
	Reason   string   `json:"reason,omitempty"` // the last part of the problem's type
	Code     int      `json:"code"`
}

// ID returns the form of a UUID (RFC 9562, version 4) of random bytes.
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

// Dropped returns the event that says that events are missing.
func Dropped(n int, since, until time.Time, id string) *Event {
	e := &Event{Level: LevelMetadata, ID: id, Stage: StageResponseComplete, Verb: VerbDrop,
		User: User{Username: UserAgent}, Received: since, At: until}
	e.Annotate(AnnotationDropped, decimal(n))
	e.Annotate(AnnotationSince, stamp(since))
	e.Annotate(AnnotationUntil, stamp(until))
	return e
}
