package audit

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/nearside-mesh/nearside/agent/base/clip"
)

// Limits of an event, in bytes before escaping, and in items.
const (
	// MaxBody bounds each body of an event.
	MaxBody = 64 << 10
	// MaxLine bounds the length of a line.
	MaxLine = 512 << 10

	maxVerb       = 32
	maxURI        = 4 << 10
	maxAgent      = 1 << 10
	maxName       = 1 << 10
	maxMessage    = 2 << 10
	maxAnnotation = 4 << 10
	// maxSlot bounds the length that [Link.Append] adds.
	maxSlot  = 256
	maxItems = 64 // groups, addresses, annotations, and keys and values of extra
)

// line is the JSON form of an event.
type line struct {
	Kind       string            `json:"kind"`
	APIVersion string            `json:"apiVersion"`
	Level      Level             `json:"level"`
	ID         string            `json:"auditID"`
	Stage      string            `json:"stage"`
	RequestURI string            `json:"requestURI"`
	Verb       string            `json:"verb"`
	User       User              `json:"user"`
	SourceIPs  []string          `json:"sourceIPs,omitempty"`
	UserAgent  string            `json:"userAgent,omitempty"`
	Object     *ObjectRef        `json:"objectRef,omitempty"`
	Status     *Status           `json:"responseStatus,omitempty"`
	Request    json.RawMessage   `json:"requestObject,omitempty"`
	Response   json.RawMessage   `json:"responseObject,omitempty"`
	Received   string            `json:"requestReceivedTimestamp"`
	At         string            `json:"stageTimestamp"`
	Notes      map[string]string `json:"annotations,omitempty"`
}

// Append appends the event's line, with its LF.
func (e *Event) Append(dst []byte) []byte {
	notes := texts(e.Annotations)
	note := func(key, value string) {
		if notes == nil {
			notes = map[string]string{}
		}
		notes[key] = value
	}
	x := line{
		Kind: "Event", APIVersion: "audit.k8s.io/v1", Level: e.Level, ID: text(e.ID, maxName), Stage: e.Stage,
		RequestURI: URI(e.RequestURI), Verb: text(e.Verb, maxVerb), User: e.User.shown(),
		SourceIPs: list(e.SourceIPs), UserAgent: text(e.UserAgent, maxAgent), Received: stamp(e.Received), At: stamp(e.At),
	}
	if o := e.Object; o != nil {
		x.Object = &ObjectRef{Resource: text(o.Resource, maxName), Mesh: text(o.Mesh, maxName), Name: text(o.Name, maxName),
			APIGroup: o.APIGroup, APIVersion: o.APIVersion,
			Revision: text(o.Revision, maxName), Subresource: text(o.Subresource, maxName)}
	}
	if s := e.Status; s != nil {
		x.Status = &Status{Status: s.Status, Message: text(s.Message, maxMessage), Reason: text(s.Reason, maxName),
			Code: s.Code}
	}
	if e.Level == LevelRequest || e.Level == LevelRequestResponse {
		x.Request = body(e.Request, e.RequestBytes, "request", note)
	}
	if e.Level == LevelRequestResponse {
		x.Response = body(e.Response, e.ResponseBytes, "response", note)
	}
	x.Notes = notes
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(&x)
	if err != nil || b.Len() > MaxLine-maxSlot { // only bodies can cause this
		x.Request, x.Response = nil, nil
		note(AnnotationTruncated, "true")
		note(AnnotationNoBody, "the bodies exceed the length of a line")
		x.Notes = notes
		b.Reset()
		_ = enc.Encode(&x) // texts always encode
	}
	return append(dst, b.Bytes()...)
}

// body returns the body for an event, or nil, and annotates truncation.
func body(doc json.RawMessage, whole int, which string, note func(key, value string)) json.RawMessage {
	if len(doc) == 0 {
		return nil
	}
	if !utf8.Valid(doc) { // encoding/json passes it through
		doc = bytes.ToValidUTF8(doc, []byte("\ufffd"))
	}
	if whole == 0 && len(doc) <= MaxBody {
		if json.Valid(doc) {
			return doc
		}
		note(AnnotationNoBody, "the "+which+" is no JSON document")
		return nil
	}
	cut := Cut(doc, MaxBody)
	if cut != nil && !json.Valid(cut) {
		cut = nil
	}
	note(AnnotationTruncated, "true")
	note(AnnotationBytes+"-"+which, decimal(max(whole, len(doc))))
	return cut
}

// shown returns the user with bounded texts.
func (u User) shown() User {
	out := User{Username: text(u.Username, maxName), UID: text(u.UID, maxName), Groups: list(u.Groups)}
	for _, k := range firstKeys(u.Extra) {
		if out.Extra == nil {
			out.Extra = make(map[string][]string, len(u.Extra))
		}
		out.Extra[text(k, maxName)] = list(u.Extra[k])
	}
	return out
}

func list(in []string) []string {
	if len(in) == 0 {
		return nil
	}
	out := make([]string, 0, min(len(in), maxItems))
	for _, s := range in[:min(len(in), maxItems)] {
		out = append(out, text(s, maxName))
	}
	return out
}

func texts(in map[string]string) map[string]string {
	if len(in) == 0 {
		return nil
	}
	out := make(map[string]string, len(in)+3)
	for _, k := range firstKeys(in) {
		out[text(k, maxName)] = text(in[k], maxAnnotation)
	}
	return out
}

// firstKeys returns up to maxItems keys of a map.
func firstKeys[V any](m map[string]V) []string {
	keys := slices.Sorted(maps.Keys(m))
	return keys[:min(len(keys), maxItems)]
}

// text bounds, redacts, and escapes a text.
func text(s string, limit int) string {
	if plain(s) && len(s) <= limit && len(s) < leastSecret {
		return s
	}
	return clip.PrintableText(withoutTokens(s[:min(len(s), 2*limit+leastSecret)]), limit)
}

// leastSecret is the minimum length of a secret that [clip.Secrets] detects.
const leastSecret = 24

// plain reports whether a text is ASCII without control characters.
func plain(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] >= 0x7f {
			return false
		}
	}
	return true
}

// tokenBegin is the prefix of JSON Web Tokens, whose header is an object in base64.
const tokenBegin = "eyJ"

// withoutTokens redacts JSON Web Tokens, including truncated ones.
func withoutTokens(s string) string {
	for from := 0; ; {
		at := strings.Index(s[from:], tokenBegin)
		if at < 0 {
			return s
		}
		at += from
		end := at
		for end < len(s) && inToken(s[end]) {
			end++
		}
		from = end
		if end-at >= leastSecret || strings.Contains(s[at:end], ".") {
			s = s[:at] + clip.Redacted + s[end:]
			from = at + len(clip.Redacted)
		}
	}
}

func inToken(c byte) bool {
	return 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-' || c == '_' ||
		c == '.' || c == '='
}

// secretNames are substrings of query parameters whose values are redacted.
var secretNames = [...]string{"token", "secret", "password", "passwd", "credential", "authorization", "key",
	"signature", "jwt"}

// URI returns a redacted path with its query.
func URI(uri string) string {
	uri = uri[:min(len(uri), 2*maxURI)]
	path, query, ok := strings.Cut(uri, "?")
	if !ok {
		return text(uri, maxURI)
	}
	params := strings.Split(query, "&")
	for i, p := range params {
		name, _, has := strings.Cut(p, "=")
		if has && slices.ContainsFunc(secretNames[:], func(s string) bool {
			return strings.Contains(strings.ToLower(clip.Unescaped(name)), s)
		}) {
			params[i] = name + "=" + clip.Redacted
		}
	}
	return text(path+"?"+strings.Join(params, "&"), maxURI)
}

// timeForm is the format of metav1.MicroTime.
const timeForm = "2006-01-02T15:04:05.000000Z07:00"

func stamp(t time.Time) string { return t.UTC().Format(timeForm) }

func decimal(n int) string { return strconv.Itoa(n) }
