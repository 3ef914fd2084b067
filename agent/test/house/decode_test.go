package house

import (
	"go/ast"
	"slices"
	"strings"
)

// encoding lists the folders between resources and the bytes that Envoy receives. They encode each
// message once.
var encoding = []string{"agent/compute", "agent/deliver/reconcile", "agent/deliver/rollout", "agent/deliver/logs"}

// mayDecode lists the files and packages below encoding that may decode messages, with the reason.
var mayDecode = map[string]string{
	"agent/compute/check/cache.go":             "decodes one resource of each shape; see decision 0017",
	"agent/compute/check/walkmessage.go":       "decodes what such a resource packs",
	"agent/compute/check/typedstruct.go":       "decodes the JSON form of what a patch packs",
	"agent/compute/check/rules_parts.go":       "decodes the HTTP options of such a cluster",
	"agent/compute/check/rules_httpfilters.go": "decodes a descriptor set that a user has encoded",

	"agent/compute/danger/keys.go":   "searches a config for keys, for a connection without encryption",
	"agent/compute/danger/guards.go": "compares the access that two forms of a rejected resource give",

	"agent/compute/match":            "answers questions about a config and edits none",
	"agent/compute/syntax":           "reads which state a network filter sets, for agent/compute/match",
	"agent/compute/generate/dump.go": "reads the config that an Envoy has",

	"agent/compute/draft/whole.go":   "a user's patch is about the whole message",
	"agent/compute/kinds/proxypatch": "a user's patch is about messages in messages",
}

// decoders are the functions and methods that decode a message.
var decoders = []string{"Unmarshal", "UnmarshalTo", "UnmarshalNew", "UnmarshalFrom"}

// notMessages lists packages whose decoders read other formats.
var notMessages = []string{"encoding/json", "google.golang.org/protobuf/encoding/protojson", "go.yaml.in/yaml/v3"}

// ruleDecode reports code that decodes a message which the agent has encoded.
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
				out = append(out, breach{f.at(n), s.Sel.Name + " decodes a message: use the value before it is encoded, " +
					"or edit its wire form as agent/compute/draft does"})
			}
			return true
		})
	})
	return out
}
