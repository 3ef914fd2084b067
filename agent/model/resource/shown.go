package resource

import (
	"fmt"

	"github.com/nearside-mesh/nearside/agent/model/secret"
)

// Shown returns the JSON of a resource as it may be shown to everybody: that of [Marshal] with
// [secret.Redacted] for each secret. Secrets are what stands in a field of a secret type, and every
// text that holds a private key.
func Shown(r *Resource) ([]byte, error) {
	b, _, err := marshal(r, false)
	if err != nil {
		return nil, err
	}
	return secret.WithoutKeys(b)
}

// ShownSpec returns the JSON of the spec of a resource as [Shown] has it.
func ShownSpec(r *Resource) ([]byte, error) {
	b, _, err := marshalSpec(r.Spec, false)
	if err != nil {
		return nil, fmt.Errorf("marshal %s: %w", r.Key, err)
	}
	return secret.WithoutKeys(b)
}

// ShownPair returns two states of a resource as [Shown], for a comparison: where a secret differs,
// so does what stands for it. With several secrets their marks are numbered, and equal ones have
// the same number.
func ShownPair(from, to *Resource) ([2][]byte, error) {
	var shown, real [2][]byte
	for i, r := range [...]*Resource{from, to} {
		var err error
		if shown[i], err = Shown(r); err != nil {
			return shown, err
		}
		if real[i], err = Marshal(r); err != nil {
			return shown, err
		}
	}
	return secret.Number(shown, real), nil
}
