package main

import (
	"fmt"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"nearside": main, "holdlock": holdLock})
}

// TestScripts runs the scripts in testdata, which check the output streams and exit codes of
// commands. A script may start an agent. "ready" waits until it responds.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       os.Getenv("UPDATE_GOLDEN") != "",
		Condition: func(cond string) (bool, error) {
			if cond == "root" {
				return os.Geteuid() == 0, nil
			}
			return false, fmt.Errorf("unknown condition %q", cond)
		},
		Setup: func(e *testscript.Env) error {
			e.Setenv("NEARSIDE_SOCKET", e.WorkDir+"/d/run/nearside.sock")
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"waitfor": waitfor,

			"ready": ready,
			"code":  code,

			"clusters": clusters,
			"remove":   removeKey,
		},
	})
}

// ready waits for the agent at NEARSIDE_SOCKET.
func ready(ts *testscript.TestScript, _ bool, _ []string) {
	late := time.After(patience)
	for {
		err := ts.Exec("nearside", "healthcheck")
		if err == nil {
			return
		}
		select {
		case <-late:
			ts.Fatalf("the agent is not ready: %v", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// code runs a command that must end with the given exit code: code 65 nearside validate …
func code(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: code N command…")
	}
	script :=
		`want=$1; shift; "$@"; got=$?; if [ $got -ne $want ]; then echo "exit code $got, want $want" >&2; exit 99; fi`
	err := ts.Exec("sh", append([]string{"-c", script, "sh"}, args...)...)
	if err != nil {
		ts.Fatalf("%v", err)
	}
}

// waitfor runs a command until its standard output matches, with any exit code: waitfor REGEXP
// COMMAND….
func waitfor(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: waitfor REGEXP command…")
	}
	want := regexp.MustCompile("(?m)" + args[0])
	late := time.After(patience)
	for {
		_ = ts.Exec(args[1], args[2:]...)
		if want.MatchString(ts.ReadFile("stdout")) {
			return
		}
		select {
		case <-late:
			ts.Fatalf("%q is not said: %s", args[0], ts.ReadFile("stdout"))
		case <-time.After(20 * time.Millisecond):
		}
	}
}
