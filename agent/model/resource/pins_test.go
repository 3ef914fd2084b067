package resource_test

import (
	"fmt"
	"strings"
	"testing"
)

// TestProcessLabels checks the values of the labels that name a unit or a cgroup, which have
// characters that other labels may not have.
func TestProcessLabels(t *testing.T) {
	r := registry(t)
	for label, want := range map[string]string{
		"nearside.io/unit: envoy@web.service":                        "",
		`nearside.io/unit: 'a\x2db:c_d.scope'`:                       "",
		"nearside.io/unit: envoy@web":                                "is not a unit; write it like envoy@web.service",
		"nearside.io/unit: a/b.service":                              "the character '/' is not allowed",
		"nearside.io/unit: 'a b.service'":                            "the character ' ' is not allowed",
		"nearside.io/unit: " + strings.Repeat("a", 300) + ".service": "has 308 characters",
		"nearside.io/cgroup: /system.slice/envoy@*.service":          "",
		"nearside.io/cgroup: system.slice":                           "is not a path of a cgroup",
		"nearside.io/cgroup: ''":                                     "is not a path of a cgroup",
		"nearside.io/user: envoy@web":                                "only letters, digits",
	} {
		_, faults := r.Decode("", []byte("{type: Dataplane, name: d, labels: {"+label+
			"}, networking: {address: 1.2.3.4, inbound: [{port: 80, tags: {kuma.io/service: s}}]}}"))
		if got := fmt.Sprint(faults); (len(faults) > 0) != (want != "") || !strings.Contains(got, want) {
			t.Errorf("%s: %v, want %q", label, got, want)
		}
	}
}
