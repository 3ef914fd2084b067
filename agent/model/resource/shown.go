package resource

import (
	"fmt"

	"github.com/nearside-mesh/nearside/agent/model/secret"
)

// Shown returns the JSON of a resource for output: that of [Marshal] with [secret.Redacted] in
// place of each secret. Secrets are fields of a secret type, and every string that contains a
// private key.
func Shown(r *Resource) ([]byte, error) {
	b, _, err := marshal(r, false)
	if err != nil {
		return nil, err
	}
	return secret.WithoutKeys(b)
}

// ShownSpec returns the JSON of a resource's spec, redacted like [Shown].
func ShownSpec(r *Resource) ([]byte, error) {
	b, _, err := marshalSpec(r.Spec, false)
	if err != nil {
		return nil, fmt.Errorf("marshal %s: %w", r.Key, err)
	}
	return secret.WithoutKeys(b)
}

// ShownPair returns two states of a resource, redacted like [Shown], for a comparison: if a secret
// differs, its mark differs too. If there are several secrets, the marks are numbered, and equal
// secrets have equal numbers.
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
