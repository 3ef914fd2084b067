package command

import "testing"

// TestColors: the environment decides whether a terminal gets colours.
func TestColors(t *testing.T) {
	for env, want := range map[string]bool{"": true, "NO_COLOR=1": false, "TERM=dumb": false, "NO_COLOR=": true} {
		if got := (&Env{Vars: []string{env}}).Colors(); got != want {
			t.Errorf("%q: %v", env, got)
		}
	}
}
