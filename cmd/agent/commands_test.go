package main

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/answer/offline"
	"github.com/nearside-mesh/nearside/agent/serve/client"
)

// Every command explains itself with an example, refuses arguments it does not know, and is in its
// parent's help.
func TestEveryCommandHelps(t *testing.T) {
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		path := strings.Fields(cmd.CommandPath())[1:]
		var out, errs bytes.Buffer
		if code := Main(append(path, "--help"), nil, &out, &errs, nil); code != exitOK || errs.Len() > 0 {
			t.Errorf("%v --help: exit code %d, %s", path, code, errs.String())
		}
		for _, want := range []string{"Examples:\n", "Usage:\n"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%v --help has no %q", path, want)
			}
		}
		if cmd.Args == nil {
			t.Errorf("%v does not check its arguments", path)
		}
		errs.Reset()
		if code := Main(append(path, "a", "b", "c", "d"), nil, &out, &errs, nil); code != exitUsage {
			t.Errorf("%v with four arguments: exit code %d, want %d", path, code, exitUsage)
		}
		if !strings.Contains(errs.String(), "hint: see "+cmd.CommandPath()+" --help") {
			t.Errorf("%v: a wrong command line gets no hint: %s", path, errs.String())
		}
		for _, c := range cmd.Commands() {
			if !c.Hidden && c.Name() != "help" {
				walk(c)
			}
		}
	}
	a := &app{}
	walk(a.root())
}

func TestExitCodes(t *testing.T) {
	for _, tc := range []struct {
		err  error
		code int
		says string
	}{
		{errors.New("x"), exitFailed, "error: x\n"},
		{usagef("x"), exitUsage, "error: x\n"},
		{silent(exitNo), exitNo, ""},
		{offline.Faults{{File: "a", Field: "b", Reason: "c"}, {Reason: "d"}}, exitInvalid, "a: b: c\nd\n"},
		{&client.UnreachableError{Socket: "/s", Err: errors.New("x")}, exitUnreachable, "nearside run"},
		{&client.PermissionError{Socket: "/s", Err: errors.New("x")}, exitPermission, "hint: run the command as root"},
		{&client.PermissionError{Socket: "/s", Err: &client.Problem{Status: 403, Title: "T"}}, exitPermission, "T"},
		{&client.Problem{Status: 400, Type: client.ProblemDocument, Title: "T", Detail: "D"}, exitInvalid, "error: T: D\n"},
		{&client.Problem{Status: 409, Title: "T", Detail: "D"}, exitFailed, "error: T: D\n"},
	} {
		for _, err := range []error{tc.err, fmt.Errorf("around: %w", tc.err)} {
			var out bytes.Buffer
			report(&out, err)
			if code := exitCode(err); code != tc.code ||
				!strings.Contains(strings.ReplaceAll(out.String(), "around: ", ""), tc.says) {
				t.Errorf("%v: exit code %d, want %d; %q", err, code, tc.code, out.String())
			}
		}
	}
	if exitCode(nil) != exitOK {
		t.Error("success is not 0")
	}
}

func TestTable(t *testing.T) {
	var out bytes.Buffer
	w := newTable(&out, "A", "B")
	w.row("x\ny", "")
	w.row("\x1b[31mred", "1")
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	want := "A             B\nx\\ny          -\n\\x1b[31mred   1\n"
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}
