package proxies

import (
	"bytes"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/answer/offline"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
)

var (
	dataplaneVar = regexp.MustCompile(`\{\{\s*\.?([A-Za-z_][A-Za-z0-9_]*)\s*\}\}`)
	varName      = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	// A value that consists of these is one scalar of YAML wherever it stands, so it cannot bring
	// fields of its own.
	varValue = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._:/-]*[A-Za-z0-9])?$`)
)

const maxVarValue = 253 // bytes, as a DNS name

// brought reads the Dataplane of --dataplane, with the variables of --dataplane-var in their
// places.
func brought(env *command.Env, o *generate.BootstrapOptions, file string, assigned []string) ([]byte, error) {
	vars := map[string]string{}
	for _, s := range assigned {
		name, value, ok := strings.Cut(s, "=")
		switch _, twice := vars[name]; {
		case !ok || !varName.MatchString(name):
			return nil,
				command.Usagef("--dataplane-var %q is not possible; write it as name=value, where the name has letters, "+
					"digits and _", s)
		case twice:
			return nil, command.Usagef("--dataplane-var %s is given twice", name)
		case len(value) > maxVarValue || !varValue.MatchString(value):
			return nil, command.Usagef("--dataplane-var %s: the value %.64q is not possible; 1 to %d letters, digits and . "+
				"_ : / - are allowed, and it begins and ends with a letter or digit", name, value, maxVarValue)
		}
		vars[name] = value
	}
	texts, err := (&command.FileFlags{Flag: "--dataplane", Paths: []string{file}}).Read(env.Stdin)
	if err != nil {
		return nil, err
	}
	used := map[string]bool{}
	for i := range texts {
		if len(vars) == 0 {
			break // braces are then what YAML makes of them
		}
		if texts[i].Data, err = fill(texts[i].Data, vars, used); err != nil {
			return nil, fmt.Errorf("--dataplane %s: %w", texts[i].Name, err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		if !used[name] {
			return nil, command.Usagef("--dataplane-var %s: %s has no {{ %s }}; take the variable away, or use it",
				name, file, name)
		}
	}
	off, faults := offline.Read(texts)
	if err := faults.Err(); err != nil {
		return nil, err
	}
	doc, err := off.Dataplane(o.Mesh, o.Name)
	if err != nil {
		return nil, fmt.Errorf("--dataplane %s: %w", file, err)
	}
	return doc, nil
}

// fill puts values in the places of variables, and notes which were used.
func fill(content []byte, vars map[string]string, used map[string]bool) ([]byte, error) {
	var missing string
	out := dataplaneVar.ReplaceAllFunc(content, func(place []byte) []byte {
		name := string(dataplaneVar.FindSubmatch(place)[1])
		value, ok := vars[name]
		if !ok && missing == "" {
			missing = name
		}
		used[name] = true
		return bytes.Clone([]byte(value))
	})
	if missing != "" {
		return nil, fmt.Errorf("the variable %q has no value; give it with --dataplane-var %s=VALUE", missing, missing)
	}
	return out, nil
}
