package ui

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
)

// openBrowser opens a URL in the browser of the user, if there is one. A failure is not an error,
// because the URL is also printed.
func openBrowser(env *command.Env, link string) {
	args := browser(env.Getenv, os.Geteuid(), exec.LookPath)
	if args == nil {
		return
	}
	cmd := exec.Command(args[0], append(args[1:], link)...) // #nosec G204 -- the user's own BROWSER
	cmd.Env = env.Vars
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // Ctrl-C ends this command, not the browser
	if err := cmd.Start(); err != nil {
		text.Printf(env.Stderr, "note: the browser cannot be opened: %v; open the URL yourself\n", err)
		return
	}
	_ = cmd.Process.Release()
}

// browser returns the command line that opens a URL, or nil if there is no display, or if the user
// at the display is not the one of this process.
func browser(getenv func(string) string, uid int, find func(string) (string, error)) []string {
	if uid == 0 && (getenv("SUDO_UID") != "" || getenv("DOAS_USER") != "" || getenv("PKEXEC_UID") != "") {
		return nil
	}
	if list := getenv("BROWSER"); list != "" {
		for _, command := range strings.Split(list, ":") {
			words := strings.Fields(strings.ReplaceAll(command, "%s", ""))
			if len(words) == 0 {
				continue
			}
			if _, err := find(words[0]); err == nil {
				return words
			}
		}
		return nil
	}
	if getenv("DISPLAY") == "" && getenv("WAYLAND_DISPLAY") == "" {
		return nil
	}
	if _, err := find("xdg-open"); err != nil {
		return nil
	}
	return []string{"xdg-open"}
}

// pollEvery is the interval in milliseconds in which newURLs looks for the end of its context.
const pollEvery = 1000

// newURLs shows a new URL for each line on the terminal, until ctx ends or the terminal is closed.
func newURLs(ctx context.Context, env *command.Env, show func() error) {
	f, ok := env.Stdin.(*os.File)
	if !ok || env.Terminal == nil {
		return
	}
	if info, err := f.Stat(); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return
	}
	lines := bufio.NewReader(f)
	for ctx.Err() == nil {
		fds := []unix.PollFd{{Fd: int32(f.Fd()), Events: unix.POLLIN}} // #nosec G115 -- a descriptor
		n, err := unix.Poll(fds, pollEvery)
		if err != nil && err != unix.EINTR {
			return
		}
		if n <= 0 {
			continue
		}
		if _, err := lines.ReadString('\n'); err != nil || show() != nil {
			return
		}
	}
}
