package agenttest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
)

// Act is an action that a [Person] tries.
type Act struct {
	Do     string // "xds", "api", "tcp", "lock", or "read"
	Socket string // path of a socket, lock file, or file; for xds and api also HOST:PORT

	NodeID    string // xds
	Dataplane string // xds: in the node metadata
	Secret    string // xds: name of a secret to subscribe to, together with the clusters
	Token     string // xds and api

	Method, Path, Body string // api; for tcp, Body is all that is sent
}

// Outcome is the result of an [Act].
type Outcome struct {
	Got    string // "served", "served key", a gRPC code, an HTTP status, "locked", "read", or "no access"
	Detail string // the message of an error
}

// personEnv is the environment variable that makes a test binary run as a person.
const personEnv = "NEARSIDE_TEST_PERSON"

// PersonMain performs the acts of a person if [Person.Try] started this process, and reports
// whether it did. Call it first in TestMain, and run no tests if it returns true.
func PersonMain() bool {
	if os.Getenv(personEnv) == "" {
		return false
	}
	var acts []Act
	if err := json.NewDecoder(os.Stdin).Decode(&acts); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return true
	}
	out := make([]Outcome, len(acts))
	for i, a := range acts {
		out[i] = a.Try()
	}
	_ = json.NewEncoder(os.Stdout).Encode(out)
	return true
}

// Person is a system user whose acts run in separate processes.
type Person struct {
	t       *testing.T
	binary  string
	cred    *syscall.Credential
	Account string
}

// People returns a function that creates persons. It skips the test if processes cannot be started
// as other users.
func People(t *testing.T) func(uid uint32, groups ...uint32) *Person {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("it takes root to act as other users")
	}
	dir := ShortDir(t)
	binary := filepath.Join(dir, "person")
	Do(t, os.Chmod(dir, 0o755))
	Program(t, binary)
	return func(uid uint32, groups ...uint32) *Person {
		return &Person{t, binary, &syscall.Credential{Uid: uid, Gid: uid, Groups: groups}, fmt.Sprint(uid)}
	}
}

// Program makes the test binary available at an unused path where other users can run it. It
// creates a link, or a copy if linking fails. While a copy is written, a process started by another
// goroutine could inherit the open file, and running it would fail with "text file busy".
func Program(t testing.TB, path string) {
	t.Helper()
	self, err := os.Executable()
	Do(t, err)
	err = os.Link(self, path)
	if err == nil {
		return
	}
	if errors.Is(err, fs.ErrExist) {
		t.Fatal(err) // writing there would modify the binary itself
	}
	text, err := os.ReadFile(self)
	Do(t, err)
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	Do(t, os.WriteFile(path, text, 0o755))
}

// Try runs acts in a separate process of the person.
func (p *Person) Try(acts ...Act) []Outcome {
	p.t.Helper()
	in, err := json.Marshal(acts)
	Do(p.t, err)
	ctx, cancel := context.WithTimeout(context.Background(), 2*Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.binary)
	// By default the race detector delays the exit of every process by 1 s.
	cmd.Env = []string{personEnv + "=1", "GORACE=atexit_sleep_ms=0"}
	cmd.Stdin = bytes.NewReader(in)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: p.cred}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	text, err := cmd.Output()
	if err != nil {
		p.t.Fatalf("a process of uid %s: %v\n%s", p.Account, err, stderr.String())
	}
	var out []Outcome
	Do(p.t, json.Unmarshal(text, &out))
	return out
}

// Try performs the act in this process.
func (a Act) Try() Outcome {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	switch a.Do {
	case "xds":
		return a.xds(ctx)
	case "tcp":
		return a.tcp(ctx)
	case "api":
		return a.api(ctx)
	}
	f, err := os.OpenFile(a.Socket, os.O_RDONLY, 0)
	if err != nil {
		return Outcome{"no access", err.Error()}
	}
	defer f.Close()
	if a.Do == "read" {
		text, err := io.ReadAll(f)
		if err != nil {
			return Outcome{"failed", err.Error()}
		}
		return Outcome{"read", string(text)}
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return Outcome{"held", err.Error()}
	}
	return Outcome{Got: "locked"}
}

// target returns the address of the socket.
func (a Act) target() (network, grpcTarget string) {
	if strings.HasPrefix(a.Socket, "/") {
		return "unix", "unix://" + a.Socket
	}
	return "tcp", "passthrough:///" + a.Socket
}

// tcp sends bytes, and reads until the other end closes the connection.
func (a Act) tcp(ctx context.Context) Outcome {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", a.Socket)
	if err != nil {
		return Outcome{"no access", err.Error()}
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(Patience))
	if _, err := io.WriteString(conn, a.Body); err != nil {
		return Outcome{"failed", err.Error()}
	}
	text, err := io.ReadAll(conn)
	if err != nil {
		return Outcome{"failed", err.Error()}
	}
	return Outcome{"answered", string(text)}
}

func (a Act) xds(ctx context.Context) Outcome {
	network, target := a.target()
	probe, err := (&net.Dialer{}).DialContext(ctx, network, a.Socket)
	if err != nil {
		return Outcome{"no access", err.Error()}
	}
	probe.Close()
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return Outcome{"no access", err.Error()}
	}
	defer conn.Close()
	if a.Token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+a.Token)
	}
	s, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		return failed(err)
	}
	n := &core.Node{Id: a.NodeID, UserAgentName: "envoy"}
	if a.Dataplane != "" {
		n.Metadata = &structpb.Struct{
			Fields: map[string]*structpb.Value{"dataplane.resource": structpb.NewStringValue(a.Dataplane)},
		}
	}
	_ = s.Send(&discoveryv3.DeltaDiscoveryRequest{Node: n, TypeUrl: draft.TypeCluster,
		ResourceNamesSubscribe: []string{"*"}})
	if a.Secret != "" {
		_ = s.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: draft.TypeSecret, ResourceNamesSubscribe: []string{a.Secret}})
	}
	got := map[string]bool{}
	for {
		r, err := s.Recv()
		if err != nil {
			return failed(err)
		}
		got[r.TypeUrl] = true
		for _, x := range r.Resources {
			if bytes.Contains(x.Resource.GetValue(), []byte("PRIVATE KEY")) {
				return Outcome{Got: "served key"}
			}
		}
		if got[draft.TypeCluster] && (a.Secret == "" || got[draft.TypeSecret]) {
			return Outcome{Got: "served"}
		}
		_ = s.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: r.TypeUrl, ResponseNonce: r.Nonce})
	}
}

func failed(err error) Outcome {
	s := status.Convert(err)
	if s.Code() == codes.Unavailable && strings.Contains(s.Message(), "permission denied") {
		return Outcome{"no access", s.Message()}
	}
	return Outcome{s.Code().String(), s.Message()}
}

func (a Act) api(ctx context.Context) Outcome {
	network, _ := a.target()
	var refused error
	hc := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		c, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, network, a.Socket)
		refused = err
		return c, err
	}}}
	defer hc.CloseIdleConnections()
	host := "localhost"
	if network == "tcp" {
		host = a.Socket
	}
	req, err := http.NewRequestWithContext(ctx, a.Method, "http://"+host+a.Path, strings.NewReader(a.Body))
	if err != nil {
		return Outcome{"no access", err.Error()}
	}
	if a.Token != "" {
		req.Header.Set("Authorization", "Bearer "+a.Token)
	}
	resp, err := hc.Do(req)
	if err != nil {
		if refused != nil {
			return Outcome{"no access", refused.Error()}
		}
		return Outcome{"failed", err.Error()}
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	return Outcome{fmt.Sprint(resp.StatusCode), string(text)}
}
