package suffix_test

import (
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/suffix"
)

func TestPublic(t *testing.T) {
	for name, want := range map[string]bool{
		"com": true, "uk": true, "co.uk": true, "github.io": true, "s3.amazonaws.com": true, "gov": true, "arpa": true,
		"ck": true, "any.ck": true, "www.ck": false, "compute.amazonaws.com": true, "eu.compute.amazonaws.com": true,
		"in-addr.arpa": true, "xn--fiqs8s": true,
		"example.com": false, "example.co.uk": false, "team.github.io": false, "amazonaws.com": false,
		"mesh": false, "mesh.local": false, "local": false, "home.arpa": false, "onion": false, "corp": false,
		"internal": false, "cluster.local": false, "lan": false, "a.b.c.example": false,
	} {
		if got := suffix.Public(name); got != want {
			t.Errorf("%s is public: %v, want %v", name, got, want)
		}
	}
}

func TestSpecialUse(t *testing.T) {
	for name, want := range map[string]string{
		"local": "local (RFC 6762)", "svc.corp.local": "local (RFC 6762)", "x.home.arpa": "home.arpa (RFC 8375)",
		"arpa": "", "example.com": "", "example": "example (RFC 6761)", "notlocal": "", "local.net": "", "": "",
	} {
		if got := suffix.SpecialUse(name); got != want {
			t.Errorf("the special-use domain of %q is %q, want %q", name, got, want)
		}
	}
}

func TestRefusal(t *testing.T) {
	for template, want := range map[string]string{
		"{{ .DisplayName }}.co.uk":              `"co.uk"`,
		"{{ .DisplayName }}-{{ .Zone }}.CO.Uk.": `"co.uk"`,
		"{{ .Name }}.x.{{ .Mesh }}.com":         `"com"`,
		"{{ .DisplayName }}-a.github.io":        `"github.io"`,
		"co.uk":                                 `"co.uk"`,
		"www.co.uk":                             "", "{{ .DisplayName }}.shop.co.uk": "", "{{ .DisplayName }}": "",
		"x-{{ .Name }}": "", "{{ .DisplayName }}.svc.mesh.local": "", "{{ .DisplayName }}.mesh": "", "": "",
	} {
		got := suffix.Refusal(&resource.Resource{Spec: &resource.HostnameGenerator{Template: template}})
		if (got == "") != (want == "") || !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q, want %q", template, got, want)
		}
	}
	if got := suffix.Refusal(&resource.Resource{Spec: &resource.Mesh{}}); got != "" {
		t.Errorf("a Mesh: %q", got)
	}
}
