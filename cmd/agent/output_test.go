package main

import (
	"bytes"
	"strings"
	"testing"
)

// output runs a command line against a socket.
func output(t *testing.T, socket string, code int, args ...string) (stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	if socket != "" {
		args = append(args, "--socket", socket)
	}
	if got := Main(args, strings.NewReader(""), &out, &errs, nil); got != code {
		t.Errorf("%v: exit code %d, want %d: %s", args, got, code, errs.String())
	}
	return out.String(), errs.String()
}
