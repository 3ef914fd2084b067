package offline_test

import (
	"context"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/answer/offline"
)

// TestGrowingFiles checks that a validation without a node's config warns about files that grow
// without limit, and only about those.
func TestGrowingFiles(t *testing.T) {
	const policies = `
type: Mesh
name: default
logging: {backends: [{name: a, type: file, conf: {path: /tmp/mesh}},
  {name: b, type: file, conf: {path: /var/log/nearside/b}}]}
---
type: MeshAccessLogBackend
mesh: default
name: a
spec: {name: a, type: File, file: {path: /tmp/backend}}
---
type: MeshAccessLogBackend
mesh: default
name: b
spec: {name: b, type: file, conf: {path: /tmp/none, rotation: none}}
---
type: MeshAccessLog
mesh: default
name: a
spec:
  to:
  - targetRef: {kind: Mesh}
    default:
      backends:
      - {type: File, file: {path: /tmp/policy}}
      - {type: File, file: {path: /dev/stdout}}
      - {type: File, file: {path: /tmp/limited, rotation: {maxFiles: 1}}}
      - {type: reference, conf: {kind: MeshAccessLogBackend, name: a}}
`
	o, faults := offline.Read([]offline.Text{{Name: "x.yaml", Data: []byte(policies)}})
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	v, err := o.Verify(context.Background(), offline.VerifyOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, w := range v.Warnings {
		if strings.Contains(w.Reason, "grows without limit") {
			got = append(got, strings.Fields(w.Reason)[2])
		}
	}
	if s := strings.Join(got, " "); s != "/tmp/policy /tmp/mesh /tmp/backend" {
		t.Errorf("warnings about %s", s)
	}
}
