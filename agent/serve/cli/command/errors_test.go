package command

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/serve/client"
)

func TestExitCodes(t *testing.T) {
	for _, tc := range []struct {
		err  error
		code int
		says string
	}{
		{errors.New("x"), ExitFailed, "error: x\n"},
		{Usagef("x"), ExitUsage, "error: x\n"},
		{Silent(ExitNo), ExitNo, ""},
		{resource.Faults{{File: "a", Field: "b", Reason: "c"}, {Reason: "d"}}, ExitInvalid, "a: b: c\nd\n"},
		{&client.UnreachableError{Socket: "/s", Err: errors.New("x")}, ExitUnreachable, "nearside run"},
		{&client.PermissionError{Socket: "/s", Err: errors.New("x")}, ExitPermission, "hint: run the command as root"},
		{&client.PermissionError{Socket: "/s", Err: &api.Error{Status: 403, Title: "T"}}, ExitPermission, "T"},
		{&api.Error{Status: 400, Type: api.ProblemDocument, Title: "T", Detail: "D"}, ExitInvalid, "error: T: D\n"},
		{&api.Error{Status: 409, Title: "T", Detail: "D"}, ExitFailed, "error: T: D\n"},
	} {
		for _, err := range []error{tc.err, fmt.Errorf("around: %w", tc.err)} {
			var out bytes.Buffer
			Report(&out, err)
			if code := ExitCode(err); code != tc.code ||
				!strings.Contains(strings.ReplaceAll(out.String(), "around: ", ""), tc.says) {
				t.Errorf("%v: exit code %d, want %d; %q", err, code, tc.code, out.String())
			}
		}
	}
	if ExitCode(nil) != ExitOK {
		t.Error("success is not 0")
	}
}
