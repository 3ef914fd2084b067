package effect

import "github.com/nearside-mesh/nearside/agent/model/api"

// SumOf returns the effect of something that consists of parts. Parts that equal the default or
// another policy count only if nothing else is in force.
func SumOf[T any](parts []T, effect func(T) string) string {
	n := map[string]int{}
	for _, p := range parts {
		n[effect(p)]++
	}
	switch {
	case n[api.EffectPart] > 0, n[api.EffectAll] > 0 && n[api.EffectNone]+n[api.EffectUnknown] > 0:
		return api.EffectPart
	case n[api.EffectAll] > 0:
		return api.EffectAll
	case n[api.EffectUnknown] > 0:
		return api.EffectUnknown
	case n[api.EffectSame] > 0:
		return api.EffectSame
	case n[api.EffectDefault] > 0:
		return api.EffectDefault
	}
	return api.EffectNone
}
