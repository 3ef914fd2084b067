package access

import (
	"fmt"
	"slices"
	"strings"
)

// KindAgent is the pseudo-kind of actions on the agent itself and on its pool, such as leaving the
// pool or setting the log level. No resource has this kind.
const KindAgent = "Agent"

// Features is a set of dangerous features that a resource uses or a permission grants. The zero
// value is the empty set.
type Features uint8

// Features. Their names are in [FeatureNames].
const (
	// FeaturePatch permits patches of Envoy's config that reach files, sockets, code, or keys.
	FeaturePatch Features = 1 << iota
	// FeatureLogPath permits access logs with the path of a file.
	FeatureLogPath

	// AllFeatures is the set of all features.
	AllFeatures = FeaturePatch | FeatureLogPath
)

// FeatureNames lists the names of all features, in the order of their bits.
var FeatureNames = [...]string{"patch-unsafe", "log-path"}

// ParseFeatures returns the set of the named features. The error names the first unknown one.
func ParseFeatures(names ...string) (out Features, err error) {
	for _, name := range names {
		i := slices.Index(FeatureNames[:], name)
		if i < 0 {
			return out, fmt.Errorf("%.64q is not a feature; use one of %s", name, strings.Join(FeatureNames[:], ", "))
		}
		out |= 1 << i
	}
	return out, nil
}

// Names returns the names of the features.
func (f Features) Names() []string {
	out := []string{}
	for i, name := range FeatureNames {
		if f&(1<<i) != 0 {
			out = append(out, name)
		}
	}
	return out
}

// String formats the features: "patch-unsafe, log-path".
func (f Features) String() string { return strings.Join(f.Names(), ", ") }

// Danger is a place in a resource that needs a feature.
type Danger struct {
	Feature Features `json:"-"`
	// Field is the path of the field in the resource, and within an embedded message.
	Field string `json:"field"`
	// Reason describes the use, with the value unless it may be a secret: `the file "/etc/shadow"`.
	Reason string `json:"reason"`
}

// String formats the danger: "spec.file.path names the log file \"/tmp/a\", which needs log-path".
func (d Danger) String() string {
	return fmt.Sprintf("%s %s, which needs the feature %s", d.Field, d.Reason, d.Feature)
}

// FeaturesOf returns the features that a list of dangers needs.
func FeaturesOf(list []Danger) (out Features) {
	for _, d := range list {
		out |= d.Feature
	}
	return out
}

// Granted returns the features that a permission grants: the listed ones, or, with * as kinds and
// without a list, all. A permission only for reading grants none.
func (a *Allow) Granted() Features {
	if !anyGlob(a.Verbs, VerbCreate) && !anyGlob(a.Verbs, VerbUpdate) {
		return 0
	}
	if len(a.Features) == 0 && slices.Contains(a.Kinds, "*") {
		return AllFeatures
	}
	f, _ := ParseFeatures(a.Features...) // unknown ones are refused before, and grant nothing
	return f
}

// has reports whether a permission includes a kind. Patterns do not match [KindAgent], except *.
func (a *Allow) has(kind string) bool {
	switch kind {
	case "":
		return len(a.Kinds) > 0
	case KindAgent:
		return slices.Contains(a.Kinds, "*") || slices.Contains(a.Kinds, KindAgent)
	}
	return anyGlob(a.Kinds, kind)
}

// Covers reports whether the permission allows an action with all of its features.
func (a *Allow) Covers(act Action) bool { return a.covers(act, false) }
