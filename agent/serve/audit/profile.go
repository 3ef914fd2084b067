package audit

import (
	"fmt"
	"slices"
	"strings"
)

// Profile is a set of rules for what is logged. Names and meanings are those of the audit log
// profiles of OpenShift.
type Profile string

const (
	ProfileNone          Profile = "None"               // nothing
	ProfileDefault       Profile = "Default"            // metadata of all requests
	ProfileWriteRequests Profile = "WriteRequestBodies" // and the bodies of requests that write, with their answers
	// and the bodies of all requests about resources, with their answers
	ProfileAllRequests Profile = "AllRequestBodies"
)

// Profiles are all of them, the one that logs least first.
func Profiles() []Profile {
	return []Profile{ProfileNone, ProfileDefault, ProfileWriteRequests, ProfileAllRequests}
}

// ParseProfile returns the profile of a name.
func ParseProfile(name string) (Profile, error) {
	if p := Profile(name); slices.Contains(Profiles(), p) {
		return p, nil
	}
	return ProfileNone,
		fmt.Errorf("%.64q is no audit profile; use one of None, Default, WriteRequestBodies, AllRequestBodies", name)
}

// Level is how much of a request is logged, as in audit.k8s.io/v1.
type Level string

const (
	LevelNone            Level = "None"            // nothing
	LevelMetadata        Level = "Metadata"        // who, when, what, and the outcome
	LevelRequest         Level = "Request"         // and the body of the request
	LevelRequestResponse Level = "RequestResponse" // and that of the answer
)

// Verbs of requests about resources. Other requests have the HTTP method in small letters.
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

// writes are the verbs that change something.
var writes = [...]string{VerbCreate, VerbUpdate, VerbPatch, VerbDelete, VerbDeleteCollection}

// Writes says whether a verb changes something.
func Writes(verb string) bool { return slices.Contains(writes[:], verb) }

// Request is what a profile decides by.
type Request struct {
	Verb     string
	Resource bool // it is about resources: any other one is never above Metadata
	// Sensitive is set where a body may hold a secret or the config of a proxy: it is never above
	// Metadata.
	Sensitive bool
	// Probe is set for the paths that machines ask every few seconds, /livez, /readyz and /metrics,
	// where they were answered: these are not logged. A probe that is refused is.
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

// Probe says whether a path is one that machines ask every few seconds.
func Probe(path string) bool { return path == "/livez" || path == "/readyz" || path == "/metrics" }

// Method returns the verb of a request that is not about resources.
func Method(httpMethod string) string { return text(strings.ToLower(httpMethod), maxVerb) }
