package secrettest_test

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/test/secrettest"
)

// TestLeaks checks that a key is found in each form, entirely and in part, and that its certificate
// does not count as a leak.
func TestLeaks(t *testing.T) {
	for range 20 {
		cert, key := secrettest.Authority(t, "a")
		other, otherKey := secrettest.Authority(t, "a")
		var l secrettest.Leaks
		l.Key(t, "key", append(cert, key...))
		l.Text("token", "a-token-that-is-longer-than-24-characters")
		block, _ := pem.Decode(key)
		quoted, _ := json.Marshal(string(key))
		for form, text := range map[string]string{
			"PEM": string(key), "JSON": string(quoted), "DER": string(block.Bytes), "hex": hex.EncodeToString(block.Bytes),
			"base64": base64.StdEncoding.EncodeToString(block.Bytes), "base64 of PEM": base64.StdEncoding.EncodeToString(key),
			"url": base64.RawURLEncoding.EncodeToString(block.Bytes), "numbers": fmt.Sprint(block.Bytes),
			"go":                            fmt.Sprintf("%#v", block.Bytes),
			"base64 of PEM behind one byte": base64.StdEncoding.EncodeToString(append([]byte("-"), key...)),
			"base64 of PEM behind two":      base64.StdEncoding.EncodeToString(append([]byte("--"), key...)),
			"second line":                   strings.Split(string(key), "\n")[2], "token": "x-token-that-is-longer-than-24-y",
		} {
			if form == "go" {
				text = strings.ReplaceAll(text, ", ", ",")
			}
			if form == "second line" {
				continue // it may contain too little of the number
			}
			if l.In([]byte("before "+text+" after")) == "" {
				t.Errorf("not found: %s", form)
			}
		}
		for _, text := range []string{
			string(cert), string(other), string(otherKey), base64.StdEncoding.EncodeToString(cert), "[redacted]", "",
		} {
			if got := l.In([]byte(text)); got != "" {
				t.Errorf("found in what is public: %s", got)
			}
		}
	}
}
