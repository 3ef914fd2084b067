package csi_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/nearside-mesh/nearside/packaging/kubernetes/watcher/csi"
)

// driverArgs is a variable with which the program of the tests runs the driver with these
// arguments.
const driverArgs = "NEARSIDE_TEST_DRIVER"

// TestMain runs the tests in a mount namespace of their own: they mount for real, and nothing of
// that is visible outside.
func TestMain(m *testing.M) {
	if args, ok := os.LookupEnv(driverArgs); ok {
		os.Exit(csi.Command(context.Background(), "test", strings.Fields(args), os.Stdout, os.Stderr))
	}
	const inside = "NEARSIDE_TEST_MOUNT_NAMESPACE"
	if os.Geteuid() != 0 || os.Getenv(inside) != "" {
		if os.Getenv(inside) != "" {
			if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
				panic(err)
			}
		}
		goleak.VerifyTestMain(m)
		return
	}
	c := exec.Command("/proc/self/exe", os.Args[1:]...)
	c.Env = append(os.Environ(), inside+"=1")
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if err := c.Run(); err != nil {
		if _, failed := err.(*exec.ExitError); !failed {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(1)
	}
}
