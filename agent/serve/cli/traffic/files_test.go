package traffic

import (
	"bytes"
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/answer/traffic"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
)

// TestUnreadableLogs checks the messages about unreadable files, and the exit code.
func TestUnreadableLogs(t *testing.T) {
	for _, c := range []struct {
		err  error
		what string
		code int
		want []string
	}{
		{&fs.PathError{Op: "open", Path: "/x/a.log", Err: fs.ErrPermission}, logAccess, command.ExitPermission,
			[]string{"error: /x/a.log: permission denied\n", "hint: run the command as root, or join the group"}},
		{&fs.PathError{Op: "open", Path: "/x/a.log", Err: fs.ErrNotExist}, logAudit, command.ExitFailed, []string{
			"error: /x/a.log: there is no such file\n", "hint: if auditLog.profile is None, the agent writes no audit log",
		}},
		{&fs.PathError{Op: "open", Path: "/x/a.log", Err: fs.ErrNotExist}, logAccess, command.ExitFailed,
			[]string{"error: /x/a.log: there is no such file\n"}},
		{errors.New("it is no file"), logAccess, command.ExitFailed, []string{"error: /x/a.log: it is no file\n"}},
	} {
		err := unreadable("/x/a.log", c.err, c.what)
		var said bytes.Buffer
		command.Report(&said, err)
		if command.ExitCode(err) != c.code {
			t.Errorf("%v: exit code %d, want %d", c.err, command.ExitCode(err), c.code)
		}
		for _, want := range c.want {
			if !strings.Contains(said.String(), want) {
				t.Errorf("%v: said is %s", c.err, said.String())
			}
		}
	}
}

// TestFilesBehind: lines of a FIFO are in the file that the agent writes; those for a collector are
// in none.
func TestFilesBehind(t *testing.T) {
	logs := []*traffic.Log{{Path: "/run/a.fifo"}, {Path: "/run/b.fifo"}, {Path: "/var/log/c.log"}, {Path: "/run/d.fifo"}}
	of, failed := filesBehind(logs, []api.LogStream{{Name: "/run/a.fifo", Destination: "file /var/log/c.log"},
		{Name: "/run/b.fifo", Destination: "tcp one:1"}})
	if len(of) != 2 || len(of["/var/log/c.log"]) != 2 || len(of["/run/d.fifo"]) != 1 || len(failed) != 1 ||
		!strings.Contains(failed[0].Error(), "/run/b.fifo: the lines go to tcp one:1") {
		t.Errorf("%v %v", of, failed)
	}
}
