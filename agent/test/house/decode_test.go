package house

import (
	"go/ast"
	"slices"
	"strings"
)

// encoding are the folders from resources to what an Envoy is sent: a message is encoded there
// once.
var encoding = []string{"agent/compute", "agent/deliver/reconcile", "agent/deliver/rollout", "agent/deliver/logs"}

// mayDecode are the files and packages below encoding that decode messages, each with its reason.
var mayDecode = map[string]string{
	"agent/compute/check":            "reads one resource of each shape, and what users have encoded",
	"agent/compute/match":            "answers questions about a config; no config is made of it",
	"agent/compute/generate/dump.go": "reads the config that an Envoy has",

	"agent/compute/draft/whole.go":   "a user's patch is about the whole message",
	"agent/compute/kinds/proxypatch": "a user's patch is about messages in messages",
}

// decoders are the functions and methods that decode a message.
var decoders = []string{"Unmarshal", "UnmarshalTo", "UnmarshalNew", "UnmarshalFrom"}

// notMessages are packages whose decoders are of other formats.
var notMessages = []string{"encoding/json", "google.golang.org/protobuf/encoding/protojson", "go.yaml.in/yaml/v3"}

// ruleDecode: what was just encoded is not decoded again.
func ruleDecode(t *tree) []breach {
	var out []breach
	t.each(func(p *pkg, f *file) {
		if f.test || mayDecode[p.dir] != "" || mayDecode[f.name] != "" ||
			!slices.ContainsFunc(encoding, func(dir string) bool {
				return p.dir == dir || strings.HasPrefix(p.dir, dir+"/")
			}) {
			return
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			s, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || !slices.Contains(decoders, s.Sel.Name) {
				return true
			}
			if path, _ := f.selector(s); !slices.Contains(notMessages, path) {
				out = append(out, breach{f.at(n), "a message is decoded with " + s.Sel.Name +
					": take the value before it is encoded, or edit its fields as agent/compute/draft does"})
			}
			return true
		})
	})
	return out
}
