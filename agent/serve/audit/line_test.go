package audit_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/nearside-mesh/nearside/agent/serve/audit"
)

func FuzzEvent(f *testing.F) {
	f.Add("/meshes?token=a", "curl\x1b[2J\n\xff", `{"a":[1,{"b":"c"}]}`)
	f.Add(strings.Repeat("\xff", 9000), strings.Repeat("\u202e", 9000), `{"a":[`+strings.Repeat(`"xxxxxxxx",`, 9000)+`1]}`)
	f.Add("", "", `[[[[`)
	f.Fuzz(func(t *testing.T, uri, agent, body string) {
		e := &audit.Event{Level: audit.LevelRequestResponse, RequestURI: uri, UserAgent: agent, Verb: agent,
			User:   audit.User{Username: agent, Groups: []string{uri}},
			Object: &audit.ObjectRef{Name: uri}, Request: []byte(body), Response: []byte(body), ResponseBytes: len(body) + 1,
			Received: time.Unix(0, 0), At: time.Unix(0, 0)}
		e.Annotate(agent, uri)
		line := e.Append(nil)
		if !json.Valid(line) || !utf8.Valid(line) || bytes.IndexByte(line, '\n') != len(line)-1 || len(line) > audit.MaxLine {
			t.Fatalf("%d bytes: %q", len(line), line)
		}
		if cut := audit.Cut([]byte(body), 40); json.Valid([]byte(body)) && cut != nil && (!json.Valid(cut) || len(cut) > 40) {
			t.Fatalf("cut of %q is %q", body, cut)
		}
	})
}

func BenchmarkMetadata(b *testing.B) {
	e := &audit.Event{Level: audit.LevelMetadata, ID: "b1d7f6a2-0c55-4a50-9d4c-4b8b7f2f1f7e",
		Stage: audit.StageResponseComplete, RequestURI: "/meshes/default/meshtimeouts/slow", Verb: "get",
		User: audit.User{Username: "root", UID: "0", Groups: []string{"root"},
			Extra: map[string][]string{audit.ExtraPID: {"77"}}}, UserAgent: "nearside/1.0",
		Object: &audit.ObjectRef{Resource: "meshtimeouts", Name: "slow"}, Status: &audit.Status{Code: 200},
		Annotations: map[string]string{audit.AnnotationDecision: "allow"}}
	for b.Loop() {
		e.Append(nil)
	}
}
