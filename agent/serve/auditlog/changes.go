package auditlog

import (
	"strconv"
	"sync"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/secret"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/serve/audit"
	"github.com/nearside-mesh/nearside/gossip/engine/sign"
)

// Changed records changes outside the API: of resource files, and of Envoys that bring Dataplanes.
// It never blocks. plural returns the plural of a kind, and by a function that
// names the author of a change.
func (l *Log) Changed(changes []store.Change, plural func(kind string) string,
	by func() func(name string, signer sign.ID) api.Author) {
	profile := l.Profile()
	if profile == audit.ProfileNone {
		return
	}
	by = sync.OnceValue(by)
	for i := range changes {
		if c := &changes[i]; c.Source.Kind != store.SourceAPI && !resource.Internal(c.Key.Kind) {
			l.Record(changeEvent(c, profile, plural(c.Key.Kind), by))
		}
	}
}

// changeEvent returns the event of one change, as if its source had sent a request.
func changeEvent(c *store.Change, profile audit.Profile, plural string,
	by func() func(name string, signer sign.ID) api.Author) *audit.Event {
	e := &audit.Event{
		ID: newID(), Stage: audit.StageResponseComplete, RequestURI: resourcePath(plural, c.Key), Verb: audit.VerbUpdate,
		User:   audit.User{Username: author(c.Source), Groups: []string{audit.GroupAuthenticated}},
		Object: objectOf(plural, c.Key), Status: &audit.Status{Code: 200}, Received: c.Time, At: c.Time,
	}
	done := "changed"
	switch {
	case c.Deleted:
		e.Verb, done = audit.VerbDelete, "deleted"
	case c.Created:
		e.Verb, done, e.Status.Code = audit.VerbCreate, "created", 201
	}
	e.Object.Revision = strconv.FormatUint(c.Revision.Revision, 10)
	q := audit.Request{Verb: e.Verb, Resource: true}
	if c.Resource != nil {
		q.Sensitive = c.Resource.HasSecrets || secret.HeldBy(c.Resource.Spec)
	}
	if e.Level = profile.Level(q); e.Level == audit.LevelRequestResponse && c.Resource != nil {
		if doc, err := resource.Shown(c.Resource); err == nil {
			e.Request = doc
		}
	}
	e.Annotate(audit.AnnotationSource, c.Source.String())
	e.Annotate(audit.AnnotationChanges, done+" "+c.Key.String()+"@"+e.Object.Revision)
	if c.Author != "" {
		e.User.Extra = map[string][]string{"nearside.io/author": {c.Author}}
	}
	if c.Signer != (sign.ID{}) {
		e.Annotate(audit.AnnotationSigned, by()(c.Author, c.Signer).String())
	}
	return e
}

// author returns the user for a source.
func author(s store.Source) string {
	switch s.Kind {
	case store.SourceFile:
		return audit.UserFile + s.Detail
	case store.SourceEnvoy:
		return audit.UserNode + s.Detail
	case store.SourceGossip:
		return audit.UserGossip + s.Detail
	case store.SourcePeer:
		return audit.UserPeer + s.Detail
	case store.SourcePublished:
		return audit.UserPublished + s.Detail
	case store.SourceNode:
		return audit.UserObserver
	}
	return "system:" + s.String()
}

// resourcePath returns the path of a resource in the API.
func resourcePath(plural string, k resource.Key) string {
	if k.Mesh == "" {
		return "/" + plural + "/" + k.Name
	}
	return "/meshes/" + k.Mesh + "/" + plural + "/" + k.Name
}

// objectOf returns the reference to a resource in an event.
func objectOf(plural string, k resource.Key) *audit.ObjectRef {
	return &audit.ObjectRef{Resource: plural, Mesh: k.Mesh, Name: k.Name, APIGroup: audit.APIGroup,
		APIVersion: audit.APIVersion}
}
