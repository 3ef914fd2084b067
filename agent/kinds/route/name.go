package route

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
)

// RouteName is the name of the routes of a rule: a hash of its matches. It is Kuma's, so that rules about routes show
// the same matchers.
func RouteName(m []Match) string {
	b, _ := json.Marshal(m) // strings and lists of them always have a JSON form
	sum := sha256.Sum256(b)
	return base64.StdEncoding.EncodeToString(sum[:])
}
