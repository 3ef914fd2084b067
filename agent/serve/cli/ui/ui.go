// Package ui implements the command ui: it serves the web page on a loopback address, with the
// rights of its user, until it is interrupted.
package ui

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
	"github.com/nearside-mesh/nearside/agent/serve/web"
)

// Commands returns the command ui.
func Commands(env *command.Env) []*cobra.Command { return []*cobra.Command{uiCommand(env)} }

// flags holds the flags of ui.
type flags struct {
	files  command.FileFlags
	port   uint16
	write  bool
	noOpen bool
	export string
	format *string
}

// Opened is the document of "ui -o json": a URL of the page, which is valid once.
type Opened struct {
	URL     string    `json:"url"`
	Address string    `json:"address"` // host and port
	Expires time.Time `json:"expires"` // of the URL
	Write   bool      `json:"write"`
}

func uiCommand(env *command.Env) *cobra.Command {
	var f flags
	cmd := &cobra.Command{
		Use:   "ui",
		Short: "Show the node on a web page",
		Long: `Serves a web page on a loopback address until it is interrupted: health, why a request is denied,
a map of services, proxies with the source of each setting, changes, logs, and the pool.

The command prints a URL that is valid once and for five minutes, and opens it if there is a
browser. Enter prints a new one. The page has the permissions of the user who runs the command, and
cannot change anything without --write. To see the page of another host, forward the port:
ssh -L 8080:127.0.0.1:8080 HOST nearside ui --port 8080.

With -f, the page shows files without an agent: reviews, and artifacts of CI. It follows folders
that change. NEARSIDE_NODE_ZONE sets the zone.

With --export, the command writes the page and the answers that it shows as static files, for any
web server, and ends. It replaces an earlier export, and refuses a folder with other files. With -f,
the same files give the same export; SOURCE_DATE_EPOCH sets its time. If files have faults, the
export shows them, and the exit code is 65.`,
		Example: `  nearside ui
  nearside ui --write
  nearside ui --port 8080 --no-open
  nearside ui -f resources/
  nearside ui -R -f resources/ --export review/`,
		Args: command.Args(0, 0, "no arguments; select files with -f"),
	}
	f.files.Add(cmd, "show these resources, without an agent")
	fl := cmd.Flags()
	fl.Uint16Var(&f.port, "port", 0, "port on the loopback address (default: a free one)")
	fl.BoolVar(&f.write, "write", false, "let the page change resources, and edit resource files")
	fl.BoolVar(&f.noOpen, "no-open", false, "do not open a browser")
	fl.StringVar(&f.export, "export", "", "write the page as static files to this folder, and end")
	_ = cmd.MarkFlagDirname("export")
	f.format = command.OutputFlag(cmd, "text", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
		defer stop()
		if err := f.files.Online(); err != nil {
			return err
		}
		if f.export != "" && (f.write || f.port != 0) {
			return command.Usagef("--export writes files and serves nothing, so --write and --port have no effect; omit them")
		}
		if len(f.files.Paths) == 0 {
			return f.ofAgent(ctx, env)
		}
		if f.write {
			return command.Usagef("--write changes the resources of an agent, and -f shows files; edit the files in an " +
				"editor, the page follows them")
		}
		begun := time.Now()
		return showFiles(ctx, env, &f.files, func(ctx context.Context, socket, temp string) error {
			if f.export != "" {
				s := newScrubber(temp, begun, sourceDate(env, f.files.Paths))
				return f.exportPage(ctx, env, web.Proxy(local, "", web.Socket(socket)), s.clean)
			}
			o := web.Options{Mode: web.ModeFiles, Files: f.files.Paths, WriteRemedy: "edit the files in an editor"}
			return f.serve(ctx, env, o, web.Proxy(local, "", web.Socket(socket)), strings.Join(f.files.Paths, ", "))
		})
	}
	return cmd
}

// local is the URL of an API on a Unix socket.
var local = &url.URL{Scheme: "http", Host: "localhost"}

// ofAgent serves the page of an agent.
func (f *flags) ofAgent(ctx context.Context, env *command.Env) error {
	who, err := env.Client().Whoami(ctx)
	if err != nil {
		return err
	}
	backend, where, remote, err := Backend(env)
	if err != nil {
		return err
	}
	if f.export != "" {
		return f.exportPage(ctx, env, backend, nil)
	}
	o := web.Options{Mode: web.ModeAgent, Write: f.write, EditFiles: f.write && !remote,
		WriteRemedy: "run nearside ui --write"}
	return f.serve(ctx, env, o, backend, fmt.Sprintf("the agent at %s as %s", where, who.Who))
}

// Backend returns the API of the agent that the flags select, and its socket or URL.
func Backend(env *command.Env) (backend http.Handler, where string, remote bool, err error) {
	s, err := env.Server()
	if err != nil {
		return nil, "", false, err
	}
	if s == nil {
		return web.Proxy(local, "", web.Socket(env.Socket())), env.Socket(), false, nil
	}
	return web.Proxy(s.URL, s.Token, s.Transport()), s.URL.String(), true, nil
}

// serve serves the page until ctx ends.
func (f *flags) serve(ctx context.Context, env *command.Env, o web.Options, backend http.Handler, what string) error {
	o.Backend, o.Login, o.Version = backend, web.LoginURL, env.Build().Version
	server, err := web.New(o)
	if err != nil {
		return err
	}
	l, err := listen(ctx, f.port)
	if err != nil {
		return err
	}
	address := l.Addr().String()
	link := func(owner string) string {
		return (&url.URL{Scheme: "http", Host: address, Path: "/", RawQuery: "key=" + server.Key(owner)}).String()
	}
	show := func() error {
		doc := Opened{URL: link(""), Address: address, Expires: time.Now().Add(web.KeyLife).UTC().Truncate(time.Second),
			Write: f.write}
		if ok, err := command.Printed(env, *f.format, doc); ok {
			return err
		}
		text.Println(env.Stdout, doc.URL)
		return nil
	}
	mode := "read-only"
	if f.write {
		mode = "with write access"
	}
	text.Printf(env.Stderr, "the page of %s (%s); each URL is valid once and for %s\n", what, mode, web.KeyLife)
	if err := show(); err != nil {
		l.Close()
		return err
	}
	if env.Terminal != nil {
		text.Println(env.Stderr, "press Enter for a new URL, Ctrl-C to stop")
	}
	if !f.noOpen && !command.IsDocument(*f.format) && env.ToTerminal {
		// Other users can see the arguments of a program, so only this user may use the key.
		openBrowser(env, link(access.OwnerOverTCP(uint32(os.Getuid())))) // #nosec G115 -- never negative on Linux
	}
	return server.Serve(ctx, func(ctx context.Context) { newURLs(ctx, env, show) }, l)
}

// listen opens the address of the page. Port 0 selects a free one.
func listen(ctx context.Context, port uint16) (net.Listener, error) {
	var lc net.ListenConfig
	var errs []error
	for _, host := range [...]string{"127.0.0.1", "::1"} {
		l, err := lc.Listen(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(int(port))))
		switch {
		case err == nil:
			return l, nil
		case errors.Is(err, syscall.EADDRINUSE):
			return nil, fmt.Errorf("--port %d: another process listens on this port; give another one, or find it with "+
				"ss -lntp 'sport = :%d'", port, port)
		case errors.Is(err, fs.ErrPermission):
			return nil, fmt.Errorf("--port %d: only root may use ports below 1024; give a higher one", port)
		}
		errs = append(errs, err)
	}
	return nil, fmt.Errorf("open a loopback address: %w", errs[0])
}
