//lint:file-ignore SA1019 an older client has older fields

package ads_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
)

// python returns an interpreter that has gRPC, such as Debian's with python3-grpcio.
func python(t *testing.T) string {
	t.Helper()
	for _, candidate := range []string{"python3", "/usr/bin/python3"} {
		if path, err := exec.LookPath(candidate); err == nil && exec.Command(path, "-c", "import grpc").Run() == nil {
			return path
		}
	}
	t.Skip("no python3 here has gRPC: install python3-grpcio")
	return ""
}

// forCore adapts resources that grpc-go supports and the C++ core of gRPC does not.
func (s *clientSide) forCore(t *testing.T) {
	t.Helper()
	for _, c := range s.clusters {
		if c.GetLbPolicy() == clusterv3.Cluster_LEAST_REQUEST {
			c.LbPolicy = clusterv3.Cluster_ROUND_ROBIN // A48 is newer
		}
	}
	texts, methods := 0, 0
	for _, rc := range s.routes {
		for _, h := range rc.GetVirtualHosts() {
			only := true
			for _, r := range h.GetRoutes() {
				// Paths are those of methods, /service/method. Others are ignored, and at least one
				// must remain (A28).
				only = only && strings.Count(r.GetMatch().GetPath(), "/") == 1
				for _, m := range r.GetMatch().GetHeaders() {
					texts += olderText(m)
				}
			}
			if only && len(h.GetRoutes()) > 0 {
				methods++
				h.Routes = append(h.Routes, &routev3.Route{Match: &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{}},
					Action: h.Routes[0].Action})
			}
		}
	}
	t.Logf("%d × string_match of a header becomes the older field, %d × a route that is no method's gets one beside it",
		texts, methods)
}

// olderText writes the match of a header in the fields that precede string_match (A63).
func olderText(m *routev3.HeaderMatcher) int {
	switch p := m.GetStringMatch().GetMatchPattern().(type) {
	case *matcherv3.StringMatcher_Exact:
		m.HeaderMatchSpecifier = &routev3.HeaderMatcher_ExactMatch{ExactMatch: p.Exact}
	case *matcherv3.StringMatcher_Prefix:
		m.HeaderMatchSpecifier = &routev3.HeaderMatcher_PrefixMatch{PrefixMatch: p.Prefix}
	case *matcherv3.StringMatcher_Suffix:
		m.HeaderMatchSpecifier = &routev3.HeaderMatcher_SuffixMatch{SuffixMatch: p.Suffix}
	case *matcherv3.StringMatcher_Contains:
		m.HeaderMatchSpecifier = &routev3.HeaderMatcher_ContainsMatch{ContainsMatch: p.Contains}
	case *matcherv3.StringMatcher_SafeRegex:
		m.HeaderMatchSpecifier = &routev3.HeaderMatcher_SafeRegexMatch{SafeRegexMatch: p.SafeRegex}
	default:
		return 0
	}
	return 1
}

// TestPythonTakesAll is TestGRPCTakesAll with the xDS client of gRPC's C++ core, which rejects
// other resources and compiles regular expressions with RE2. All channels share one client and one
// stream.
func TestPythonTakesAll(t *testing.T) {
	if testing.Short() {
		t.Skip("what clients take is asked without the race detector: nothing of it depends on what runs beside")
	}
	interpreter := python(t)
	s := collected(t)
	s.onLoopback()
	s.forCore(t)
	l, r := s.all(t)
	all := slices.Concat(messages(s.clusters), messages(s.endpoints), messages(s.routes), []proto.Message{l, r})
	targets := []string{"xds:///" + allClusters}
	for i, m := range s.managers {
		name := fmt.Sprintf(listenerOf, i)
		all = append(all, s.listener(t, name, m))
		targets = append(targets, "xds:///"+name)
	}
	cfg := sealedOf(t, all...)
	a := servingEach(t, map[string]*draft.Sealed{"python": cfg})
	file := filepath.Join(t.TempDir(), "bootstrap.json")
	if err := os.WriteFile(file, a.bootstrap(t, "default.python"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(interpreter, append([]string{"testdata/grpc_client.py"}, targets...)...)
	cmd.Env = append(os.Environ(), "GRPC_XDS_BOOTSTRAP="+file, "GRPC_VERBOSITY=ERROR")
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		stdin.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the client: %v", err)
		}
	}()
	version, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	a.taken(t, "python", cfg)
	if t.Failed() {
		return
	}
	t.Logf("grpcio %s took %d resources", strings.TrimSpace(version), len(all))
}
