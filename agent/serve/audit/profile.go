package audit

import (
	"fmt"
	"slices"
	"strings"
)

// Profile selects the logged requests and their level. Names and meanings are those of OpenShift's
// audit log profiles.
type Profile string

const (
	ProfileNone          Profile = "None"               // nothing
	ProfileDefault       Profile = "Default"            // metadata of all requests
	ProfileWriteRequests Profile = "WriteRequestBodies" // and the bodies of write requests and their answers
	// and the bodies of all resource requests and their answers
	ProfileAllRequests Profile = "AllRequestBodies"
)

// Profiles returns all profiles, least verbose first.
func Profiles() []Profile {
	return []Profile{ProfileNone, ProfileDefault, ProfileWriteRequests, ProfileAllRequests}
}

// ParseProfile parses a profile.
func ParseProfile(name string) (Profile, error) {
	if p := Profile(name); slices.Contains(Profiles(), p) {
		return p, nil
	}
	return ProfileNone,
		fmt.Errorf("%.64q is not an audit profile; use one of None, Default, WriteRequestBodies, AllRequestBodies", name)
}

// Level is how much of a request is logged, as in audit.k8s.io/v1.
type Level string

const (
	LevelNone            Level = "None"            // nothing
	LevelMetadata        Level = "Metadata"        // user, time, request, and outcome
	LevelRequest         Level = "Request"         // and the body of the request
	LevelRequestResponse Level = "RequestResponse" // and the body of the answer
)

// Verbs of resource requests. Other requests have the HTTP method in lower case.
const (
	VerbGet              = "get"
	VerbList             = "list"
	VerbWatch            = "watch"
	VerbCreate           = "create"
	VerbUpdate           = "update"
	VerbPatch            = "patch"
	VerbDelete           = "delete"
	VerbDeleteCollection = "deletecollection"
)

// writes are the verbs that change resources.
var writes = [...]string{VerbCreate, VerbUpdate, VerbPatch, VerbDelete, VerbDeleteCollection}

// Writes reports whether a verb changes resources.
func Writes(verb string) bool { return slices.Contains(writes[:], verb) }

// Request holds the properties of a request that determine its level.
type Request struct {
	Verb     string
	Resource bool // a resource request; other requests never exceed Metadata
	// Sensitive is set if a body may contain a secret or the config of a proxy. The level never
	// exceeds Metadata.
	Sensitive bool
	// Probe is set for successful requests to /livez, /readyz, and /metrics, which are polled every
	// few seconds and not logged. A refused probe is logged.
	Probe bool
}

// Level returns how much of a request is logged.
func (p Profile) Level(r Request) Level {
	switch {
	case p == ProfileNone || p == "" || r.Probe:
		return LevelNone
	case r.Sensitive || !r.Resource:
		return LevelMetadata
	case p == ProfileAllRequests, p == ProfileWriteRequests && Writes(r.Verb):
		return LevelRequestResponse
	}
	return LevelMetadata
}

// Probe reports whether a path is polled every few seconds.
func Probe(path string) bool { return path == "/livez" || path == "/readyz" || path == "/metrics" }

// Method returns the verb of a request without a resource.
func Method(httpMethod string) string { return text(strings.ToLower(httpMethod), maxVerb) }
