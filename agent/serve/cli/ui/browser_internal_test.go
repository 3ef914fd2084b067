package ui

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
)

// TestBrowser compares the browser that each environment selects.
func TestBrowser(t *testing.T) {
	for name, x := range map[string]struct {
		env  []string
		uid  int
		has  string // installed programs
		want string
	}{
		"no display":            {nil, 1000, "xdg-open", ""},
		"X":                     {[]string{"DISPLAY=:0"}, 1000, "xdg-open", "xdg-open"},
		"Wayland":               {[]string{"WAYLAND_DISPLAY=w"}, 1000, "xdg-open", "xdg-open"},
		"no xdg-open":           {[]string{"DISPLAY=:0"}, 1000, "", ""},
		"BROWSER":               {[]string{"BROWSER=links"}, 1000, "links xdg-open", "links"},
		"BROWSER with %s":       {[]string{"BROWSER=fox --new-tab %s"}, 1000, "fox", "fox --new-tab"},
		"the second of BROWSER": {[]string{"BROWSER=::absent:links:fox"}, 1000, "links fox", "links"},
		"BROWSER is absent":     {[]string{"BROWSER=absent", "DISPLAY=:0"}, 1000, "xdg-open", ""},
		"root":                  {[]string{"DISPLAY=:0"}, 0, "xdg-open", "xdg-open"},
		"sudo":                  {[]string{"DISPLAY=:0", "BROWSER=fox", "SUDO_UID=1000"}, 0, "fox xdg-open", ""},
		"doas":                  {[]string{"DISPLAY=:0", "DOAS_USER=ann"}, 0, "xdg-open", ""},
		"pkexec":                {[]string{"DISPLAY=:0", "PKEXEC_UID=1000"}, 0, "xdg-open", ""},
		"sudo to a user":        {[]string{"DISPLAY=:0", "SUDO_UID=1000"}, 1001, "xdg-open", "xdg-open"},
	} {
		env := command.Env{Vars: x.env}
		got := browser(env.Getenv, x.uid, func(program string) (string, error) {
			for _, p := range strings.Fields(x.has) {
				if p == program {
					return "/usr/bin/" + p, nil
				}
			}
			return "", exec.ErrNotFound
		})
		if strings.Join(got, " ") != x.want {
			t.Errorf("%s: %q, want %q", name, got, x.want)
		}
	}
}
