package traffic

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/clip"
)

// event holds the displayed fields of an audit.k8s.io/v1 event.
type event struct {
	Kind   string `json:"kind"`
	Time   string `json:"stageTimestamp"`
	Verb   string `json:"verb"`
	URI    string `json:"requestURI"`
	User   struct{ Username string }
	Object struct{ Resource, Namespace, Name, Subresource string } `json:"objectRef"`
	Status struct {
		Code    int
		Message string
	} `json:"responseStatus"`
	Annotations map[string]string
}

// text formats the event as one line: time, user, verb, object, code, and message.
func (e *event) text() string {
	object := e.URI
	if e.Object.Resource != "" {
		parts := []string{e.Object.Resource}
		for _, p := range []string{e.Object.Namespace, e.Object.Name, e.Object.Subresource} {
			if p != "" {
				parts = append(parts, p)
			}
		}
		object = strings.Join(parts, "/")
	}
	message := e.Status.Message
	if n := e.Annotations["nearside.io/dropped"]; n != "" {
		message = fmt.Sprintf("events missing here: %s, from %s to %s",
			n, e.Annotations["nearside.io/dropped-since"], e.Annotations["nearside.io/dropped-until"])
	}
	if change := e.Annotations["nearside.io/config"]; change != "" {
		message = change
	}
	fields := []string{e.Time, e.User.Username, e.Verb, object, strconv.Itoa(e.Status.Code)}
	if e.Status.Code == 0 {
		fields[4] = ""
	}
	for i := range fields {
		fields[i] = strings.ReplaceAll(clip.Printable(cmp.Or(fields[i], "-")), " ", "\\x20") // keep it one field
	}
	if message != "" {
		fields = append(fields, clip.Printable(message))
	}
	return strings.Join(fields, " ") + "\n"
}
