package main

import (
	"strconv"
	"strings"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"go.yaml.in/yaml/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// hostile is text that others can supply. It clears the screen, sets the window title, changes
// colors with a one-byte control character of Latin-1, changes the direction of text, and starts a
// new line.
const hostile = "\x1b[2J\x1b]0;owned\a\u009b31m\u202eevil\u2066\x7f\u2028\r\nforged: all is well\n"

// unsafeText returns a description of terminal control characters in out, or "" if there are none.
func unsafeText(out string) string {
	for i, r := range out {
		if r != '\n' && r != '\t' && !strconv.IsGraphic(r) {
			return strconv.QuoteToASCII(out[max(0, i-60):min(len(out), i+20)])
		}
	}
	for line := range strings.Lines(out) {
		if strings.HasPrefix(strings.TrimSpace(line), "forged") {
			return "a forged line: " + strconv.Quote(line)
		}
	}
	return ""
}

// TestHostileTextIsEscaped checks that text from proxies, files, and documents reaches an
// operator's terminal only as visible text on its line.
func TestHostileTextIsEscaped(t *testing.T) {
	t.Parallel()
	dir := quickTemp(t)
	write(t, dir+"/resources/web.yaml", webDoc+"---\ntype: MeshProxyPatch\nmesh: default\nname: tags\n"+
		"spec: {targetRef: {kind: Mesh}, default: {appendModifications: [{cluster: {operation: Add, value: "+
		strconv.QuoteToASCII("name: \""+`\e[2Jevil\u202e`+"\"\nconnect_timeout: 1s\ntype: STATIC\n")+"}}]}}\n")
	name := strings.NewReplacer("\n", "\n", "/", "_").Replace(hostile)
	write(t, dir+"/resources/"+name+"bad.yaml",
		"type: Mesh\nname: "+strconv.QuoteToASCII(hostile)+"\n"+strconv.QuoteToASCII(hostile)+": 1\n")
	write(t, dir+"/resources/"+name+"good.yaml", "type: Mesh\nname: other\n---\ntype: Mesh\nname: default\n")
	d := start(t, dir)

	text := structpb.NewStringValue(hostile)
	annotated := func(key string) *structpb.Struct {
		return &structpb.Struct{Fields: map[string]*structpb.Value{
			"annotations": structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{key: text}}),
		}}
	}
	for what, node := range map[string]*core.Node{
		"node id": {Id: "default." + hostile, UserAgentName: hostile},
		"dataplane": {Id: "default.db",
			Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{"dataplane.resource": text}}},
		"services": {Id: "default.db", Metadata: annotated("kuma.io/reachable-backends")},
	} {
		if _, err := openNode(t, d.xds(), node).Recv(); err == nil {
			t.Errorf("a node with a hostile %s is served", what)
		} else if bad := unsafeText(err.Error()); bad != "" {
			t.Logf("a hostile %s comes back to its sender as it was: %s", what, bad)
		}
	}
	s := openNode(t, d.xds(), &core.Node{Id: "default.web", UserAgentName: hostile,
		UserAgentVersionType: &core.Node_UserAgentVersion{UserAgentVersion: hostile},
		Metadata:             annotated(hostile)})
	r, err := s.Recv()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: clusterType, ResponseNonce: r.Nonce,
		ErrorDetail: &status.Status{Code: 3, Message: hostile}}); err != nil {
		t.Fatal(err)
	}
	agenttest.Eventually(t, "the rejection is known", func() bool {
		_, out, _ := d.nearside("", "inspect", "dataplanes", "-o", "wide")
		return strings.Contains(out, "rejected")
	})
	seen := ""
	doc := "type: Mesh\nname: default\n---\ntype: MeshTimeout\nmesh: default\nname: t\nlabels: {note: " +
		strconv.QuoteToASCII(hostile) + "}\nspec: {" + strconv.QuoteToASCII(hostile) + ": 1}\n"
	for _, args := range [][]string{
		{"status"}, {"check"}, {"get", "dataplanes"}, {"get", "dataplanes", "-o", "wide"}, {"get", "dp", "-o", "name"},
		{"get", "meshproxypatches", "-o", "wide"},
		{"get", "meshproxypatch", "tags", "-o", "yaml"}, {"get", "meshes"}, {"inspect", "dataplanes"},
		{"inspect", "dataplanes", "-o", "wide"},
		{"inspect", "dataplane", "web"}, {"inspect", "dataplane", "web", "-o", "yaml"},
		{"inspect", "dataplane", "web", "--type=status"},
		{"inspect", "dataplane", "web", "--type=status", "-o", "yaml"}, {"inspect", "dataplane", "web", "--type=rules"},
		{"inspect", "dataplane", "web", "--type=policies"},
		{"explain", "policy", "meshproxypatch/tags", "--dataplane", "web"}, {"history", "meshproxypatch", "tags"},
		{"status", "-o", "yaml"}, {"check", "-o", "yaml"},
		{"wait", "meshproxypatch/tags", "--for=applied", "--timeout=50ms"}, {"diff", "-f", dir + "/resources"},
		{"validate", "-f", dir + "/resources"}, {"apply", "-f", dir + "/resources"},
		{"apply", "-f", "-"}, {"validate", "-f", "-"}, {"diff", "-f", "-"}, {"apply", "-f", dir + "/" + hostile},
		{"delete", "mesh", hostile}, {"get", hostile}, {"get", "mesh", hostile},
		{"get", "dp", "-m", hostile}, {"inspect", "dataplane", hostile}, {hostile}, {"get", "--" + hostile},
		{"status", "-o", hostile}, {"bootstrap", "--name", hostile}, {"wait", "mesh", hostile, "--timeout=10ms"},
		{"check-config", dir + "/" + hostile}, {"check-config", "--set", "node.zone=" + hostile},
		{"check-config", "--set", hostile}, {"rollback", "mesh", hostile, "--to", "1"},
		{"explain", "policy", hostile, "--dataplane", hostile}, {"migrate", "-f", "-"}, {"healthcheck"},
		{"delete", "meshproxypatch", "tags"},
		{"__complete", "get", "dataplanes", ""}, {"__complete", "get", hostile},
	} {
		code, out, errs := d.nearside(doc, args...)
		if bad := unsafeText(out); bad != "" {
			t.Errorf("%q (%d) writes to standard output %s", args, code, bad)
		}
		// Error lines after the first are indented, so they cannot imitate other messages.
		if bad := unsafeText(strings.ReplaceAll(errs, "\n  ", "\n| ")); bad != "" {
			t.Errorf("%q (%d) writes to standard error %s", args, code, bad)
		}
		seen += out + errs
	}
	agenttest.Contains(t, seen, `\x1b[2J`, `\u202e`, `\u009b31m`)
	if _, out, _ := d.nearside("", "get", "meshproxypatch", "tags", "-o", "yaml"); !strings.Contains(out, `\e[2Jevil`) {
		t.Errorf("the document: %s", out)
	}
	if bad := unsafeText(d.logged()); bad != "" {
		t.Errorf("the log has %s", bad)
	}
}

// TestYAMLKeepsTheText checks that YAML parsers decode the escaped output of -o yaml to the same
// text.
func TestYAMLKeepsTheText(t *testing.T) {
	t.Parallel()
	for _, s := range []string{
		hostile, "two\nlines", "\u202e", "\u0085\u2028", "tab\t", "\x00", "\U000e0041", "back\\slash \x1b", "plain",
	} {
		var b strings.Builder
		if err := text.YAML(text.Writer{W: &b}, map[string]string{"a": s, "k" + s: "b"}); err != nil {
			t.Fatal(err)
		}
		var got map[string]string
		if err := yaml.Unmarshal([]byte(b.String()), &got); err != nil || got["a"] != s || got["k"+s] != "b" {
			t.Errorf("%q became %q (%v) by\n%s", s, got, err, b.String())
		}
		if bad := unsafeText(b.String()); bad != "" && !strings.Contains(bad, "forged") {
			t.Error(bad)
		}
	}
}

func openNode(t *testing.T, socket string, node *core.Node) deltaStream {
	t.Helper()
	s, err := dialNode(t.Context(), t, socket, node)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
