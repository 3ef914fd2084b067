package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/nearside-mesh/nearside/agent/client"
)

// clockSlack is how far in the future what has happened may lie, as when a clock is set back a little.
const clockSlack = 2 * time.Second

// checkClock tells when the clock of the host cannot be right.
func checkClock(t *selfTest, s *client.Status) { clockAt(t, s, time.Now()) }

func clockAt(t *selfTest, s *client.Status, now time.Time) {
	const hint = "set the clock of the host: certificates are valid for a time; timedatectl says whether it is kept"
	switch {
	case now.Year() < 2025: // before this program was written: the clock was not set
		t.add(checkFail, "clock", hint, "it says %s", now.UTC().Format(time.RFC3339))
	case s.Info.Started.After(now.Add(clockSlack)):
		t.add(checkWarn, "clock", hint, "it says %s, and the agent was started at %s: it was set back", now.UTC().Format(time.RFC3339), s.Info.Started.UTC().Format(time.RFC3339))
	case s.Reconcile != nil && s.Reconcile.At.After(now.Add(clockSlack)):
		t.add(checkWarn, "clock", hint, "it says %s, and configs were made at %s: it was set back", now.UTC().Format(time.RFC3339), s.Reconcile.At.UTC().Format(time.RFC3339))
	default:
		t.add(checkOK, "clock", "", "it goes forward")
	}
}

// checkSockets looks at the modes of the sockets.
func checkSockets(t *selfTest, api string) {
	for _, x := range []struct{ name, path, key string }{
		{"api-socket", api, "api.socket"}, {"xds-socket", filepath.Join(filepath.Dir(api), "xds.sock"), "xds.socket"},
	} {
		info, err := os.Stat(x.path)
		switch {
		case err != nil && x.name == "xds-socket":
			continue // it may lie elsewhere
		case err != nil:
			t.add(checkWarn, x.name, "give this command the right to look at it", "%v", err)
		case info.Mode()&os.ModeSocket == 0:
			t.add(checkFail, x.name, "give the path of the socket with --socket", "%s is no socket", x.path)
		case x.name == "api-socket" && info.Mode().Perm()&0o002 != 0 && everybodyEnters(x.path):
			t.add(checkWarn, x.name, "set "+x.key+`.mode to "0660" and restart the agent`, "%s has mode %04o: everybody on the host may read all resources", x.path, info.Mode().Perm())
		case info.Mode().Perm()&0o200 == 0:
			t.add(checkFail, x.name, "set "+x.key+".mode so that its owner may write, and restart the agent", "%s has mode %04o: nobody can connect", x.path, info.Mode().Perm())
		default:
			t.add(checkOK, x.name, "", "%s has mode %04o", x.path, info.Mode().Perm())
		}
	}
}

// everybodyEnters reports whether everybody may enter the directory of a socket.
func everybodyEnters(path string) bool {
	info, err := os.Stat(filepath.Dir(path))
	return err == nil && info.Mode().Perm()&0o001 != 0
}

// plural is a number of things.
func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
