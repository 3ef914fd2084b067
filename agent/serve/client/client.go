// Package client is a client of the agent's HTTP API on its Unix socket or over TCP.
//
// Every call takes a context, makes at most one connection at a time, and keeps none open. Errors
// are typed, so that a command can suggest a remedy: [UnreachableError] if no agent responds,
// [PermissionError] if the agent denies the request, and [api.Error] with the invalid fields for
// other refusals.
package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/api"
)

// UnreachableError reports that no agent responds at a socket or a URL.
type UnreachableError struct {
	Socket    string // path, or URL
	Remote    bool   // Socket is a URL
	Untrusted bool   // the certificate of the server is not valid
	Err       error
}

// Error returns the socket and the cause.
func (e *UnreachableError) Error() string {
	if e.Untrusted {
		return fmt.Sprintf("the certificate of %s is not trusted: %v", e.Socket, e.Err)
	}
	return fmt.Sprintf("no agent answers at %s: %v", e.Socket, e.Err)
}

func (e *UnreachableError) Unwrap() error { return e.Err }

// Hint returns a remedy.
func (e *UnreachableError) Hint() string {
	switch {
	case e.Untrusted:
		return "give the authority of the server's certificate with --ca or NEARSIDE_CA"
	case e.Remote:
		return "compare the URL with api.tcp of the agent's config, and with the proxy in front of it"
	}
	if e.Socket != quickstartSocket && isSocket(quickstartSocket) {
		return "there is the socket of an agent in this folder: export NEARSIDE_SOCKET=" + quickstartSocket
	}
	return "start the agent with `nearside run` (or `systemctl start nearside`), or name the socket of a running one " +
		"with --socket or NEARSIDE_SOCKET"
}

// UnansweredError reports that the agent accepted a connection, but did not answer.
type UnansweredError struct {
	Socket string
	Err    error
	After  time.Duration // time without data; 0: the agent closed the connection
}

// Error returns the socket and the cause.
func (e *UnansweredError) Error() string {
	if e.After > 0 {
		return fmt.Sprintf("the agent at %s has said nothing for %s", e.Socket, e.After)
	}
	return fmt.Sprintf("the agent at %s ended the connection before it answered: %v", e.Socket, e.Err)
}

func (e *UnansweredError) Unwrap() error { return e.Err }

// Hint returns a remedy.
func (e *UnansweredError) Hint() string {
	if e.After > 0 {
		return "the agent is busy; see `nearside status`, and repeat the command in a moment"
	}
	return "the agent may have stopped or restarted: see its log, and repeat the command when `nearside " +
		"status` responds"
}

// PermissionError reports that the caller lacks a permission.
type PermissionError struct {
	Socket string // path, or URL
	Remote bool   // Socket is a URL
	Err    error
}

// Error returns the socket and the cause.
func (e *PermissionError) Error() string {
	return fmt.Sprintf("not permitted at %s: %v", e.Socket, e.Err)
}

func (e *PermissionError) Unwrap() error { return e.Err }

// Hint returns a remedy.
func (e *PermissionError) Hint() string {
	var p *api.Error
	if errors.As(e.Err, &p) {
		for _, d := range p.Denied {
			if len(d.Roles) > 0 {
				return "ask for one of these roles in api.roles of the agent's config; nearside access whoami shows what you have"
			}
		}
	}
	if e.Remote {
		return "give a valid token with --token-file or NEARSIDE_TOKEN_FILE; nearside token create --api creates one"
	}
	return "run the command as root or as the agent's user, or become a member of the socket's group and log in again"
}

// maxAnswer is the maximum size of a response in bytes. It exceeds the size of any real mesh.
const maxAnswer = 512 << 20

// Client is a client of one agent. It is safe for concurrent use.
type Client struct {
	// Progress is called while the agent computes the effects of a change on proxies, with the
	// number of completed proxies and the total. Both are 0 while the agent serves other requests.
	// It may be nil, and must not change during a call.
	Progress func(done, all int)

	base    string // URL without a path
	socket  string // path, or URL, for messages
	remote  bool   // over TCP
	token   string // bearer token; empty: none
	broken  error  // of every call
	timeout time.Duration
	http    *http.Client
}

// New returns a client for a Unix socket. It does not connect. timeout bounds the time without any
// data from the agent, so a call that reports progress may take longer. The default is 30 s.
func New(socket string, timeout time.Duration) *Client {
	c := &Client{base: "http://nearside", socket: socket, timeout: timeoutOr(timeout)}
	c.http = &http.Client{Transport: c.transport(func(ctx context.Context, d *net.Dialer, _ string) (net.Conn, error) {
		return d.DialContext(ctx, "unix", socket)
	})}
	return c
}

func timeoutOr(timeout time.Duration) time.Duration {
	if timeout == 0 {
		return 30 * time.Second
	}
	return timeout
}

// transport returns a transport whose connections come from dial.
func (c *Client) transport(dial func(context.Context, *net.Dialer, string) (net.Conn, error)) *http.Transport {
	var d net.Dialer
	return &http.Transport{
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, c.timeout)
			defer cancel()
			conn, err := dial(ctx, &d, address)
			if err != nil {
				return nil, err
			}
			return &patient{Conn: conn, timeout: c.timeout}, nil
		},
		DisableKeepAlives:  true,
		DisableCompression: true,
	}
}

// patient is a connection whose timeout applies to each read and write.
type patient struct {
	net.Conn
	timeout time.Duration
}

func (c *patient) Read(p []byte) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(c.timeout)); err != nil {
		return 0, err
	}
	return c.Conn.Read(p)
}

func (c *patient) Write(p []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(c.timeout)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// do sends a request. On success, it decodes the JSON response into "into", or stores the raw bytes
// if into is a *[]byte. into may be nil. The status codes in also count as success.
func (c *Client) do(ctx context.Context, method, path string, query url.Values, body []byte, into any,
	also ...int) error {
	return c.doIf(ctx, "", method, path, query, body, into, also...)
}

// doIf is do with an If-Match header, unless etag is empty.
func (c *Client) doIf(ctx context.Context, etag, method, path string, query url.Values, body []byte, into any,
	also ...int) error {
	req, err := c.request(ctx, method, path, query, body)
	if err != nil {
		return err
	}
	if etag != "" {
		req.Header.Set("If-Match", etag)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set(api.ProgressHeader, "yes")
	begun := time.Now()
	resp, err := c.http.Do(req.WithContext(c.traced(ctx)))
	if err != nil {
		return c.failed(err, begun)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return c.failed(err, begun)
	case len(data) > maxAnswer:
		return fmt.Errorf("%s %s: the answer has more than %d bytes", method, path, maxAnswer)
	}
	ok := resp.StatusCode >= 200 && resp.StatusCode < 300
	for _, s := range also {
		ok = ok || s == resp.StatusCode
	}
	if !ok {
		return c.refused(resp, data)
	}
	if into == nil {
		return nil
	}
	if raw, ok := into.(*[]byte); ok {
		*raw = data
		return nil
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("%s %s: what answers at %s is not an agent that this command knows: %w",
			method, path, c.socket, err)
	}
	return nil
}

// maxSocketBytes is the maximum length of a Unix socket path, without the final NUL (unix(7)).
const maxSocketBytes = 107

// waited returns how long a request has waited at most for data: the timeout of the client, or less
// if its context ended before.
func (c *Client) waited(begun time.Time) time.Duration {
	if d := time.Since(begun); d < c.timeout*9/10 {
		return max(d.Round(time.Millisecond), time.Millisecond)
	}
	return c.timeout
}

// failed classifies an error of the connection of a request that began at a time.
func (c *Client) failed(err error, begun time.Time) error {
	if len(c.socket) > maxSocketBytes && !c.remote {
		return &UnreachableError{
			Socket: c.socket,
			Err: fmt.Errorf("the path has %d bytes, and the system takes at most %d for a socket",
				len(c.socket), maxSocketBytes),
		}
	}
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err // without the URL, which is synthetic
	}
	if errors.Is(err, context.Canceled) {
		return err
	}
	var late interface{ Timeout() bool }
	var broken *net.OpError
	switch {
	case errors.As(err, &late) && late.Timeout():
		return &UnansweredError{Socket: c.socket, Err: err, After: c.waited(begun)}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		// The agent closed the connection before the request was written. net/http has no exported
		// error for this case.
		strings.Contains(err.Error(), "server closed idle connection"):
		return &UnansweredError{Socket: c.socket, Err: errors.New("the answer has no end")}
	case errors.As(err, &broken) && broken.Op != "dial":
		return &UnansweredError{Socket: c.socket, Err: broken.Err}
	}
	if c.remote {
		return c.failedServer(err)
	}
	if errors.Is(err, fs.ErrPermission) {
		return &PermissionError{Socket: c.socket, Err: fs.ErrPermission}
	}
	var op *net.OpError
	if errors.As(err, &op) {
		err = op.Err // without the path, which the error already contains
	}
	if st, serr := os.Stat(c.socket); serr == nil && st.Mode().Type() != fs.ModeSocket {
		err = errors.New("that is no socket")
	}
	return &UnreachableError{Socket: c.socket, Err: err}
}

// refused reads the problem document of a response.
func (c *Client) refused(resp *http.Response, body []byte) error {
	p := &api.Error{}
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if media != "application/problem+json" || json.Unmarshal(body, p) != nil || p.Title == "" {
		return fmt.Errorf("what answers at %s is not an agent: %s", c.socket, resp.Status)
	}
	if resp.StatusCode == http.StatusForbidden || resp.StatusCode == http.StatusUnauthorized {
		return &PermissionError{Socket: c.socket, Remote: c.remote, Err: p}
	}
	return p
}

// path joins and escapes segments.
func path(segments ...string) string {
	var b strings.Builder
	for _, s := range segments {
		b.WriteByte('/')
		b.WriteString(url.PathEscape(s))
	}
	return b.String()
}

// resourcePath returns the path of a resource or a collection. An empty mesh means global kinds or
// all meshes.
func resourcePath(kind, mesh string, name ...string) string {
	if mesh == "" {
		return path(append([]string{kind}, name...)...)
	}
	return path(append([]string{"meshes", mesh, kind}, name...)...)
}

func flag(name string, on bool) url.Values {
	if !on {
		return nil
	}
	return url.Values{name: {strconv.FormatBool(on)}}
}

// DefaultSocket is the socket of a privileged agent.
const DefaultSocket = "/run/nearside/nearside.sock"

// FindSocket returns the socket of the agent: given (a flag), otherwise NEARSIDE_SOCKET, otherwise
// DefaultSocket. If the caller is not root and DefaultSocket does not exist, FindSocket tries the
// sockets of unprivileged agents: $XDG_RUNTIME_DIR/nearside/run/nearside.sock and
// ./nearside-data/run/nearside.sock.
func FindSocket(given string, getenv func(string) string, uid int) string {
	if given != "" {
		return given
	}
	if s := getenv("NEARSIDE_SOCKET"); s != "" {
		return s
	}
	if uid == 0 || isSocket(DefaultSocket) {
		return DefaultSocket
	}
	candidates := []string{quickstartSocket}
	if dir := getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		candidates = append([]string{filepath.Join(dir, "nearside", "run", "nearside.sock")}, candidates...)
	}
	for _, c := range candidates {
		if isSocket(c) {
			return c
		}
	}
	return DefaultSocket
}

// quickstartSocket is the socket of an agent that runs in the current directory, as with "make
// run".
var quickstartSocket = filepath.Join("nearside-data", "run", "nearside.sock")

func isSocket(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().Type() == fs.ModeSocket
}
