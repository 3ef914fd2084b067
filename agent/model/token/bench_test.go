package token_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/token"
)

// BenchmarkVerify measures the verification of a valid token and of invalid ones, which any client
// may send.
func BenchmarkVerify(b *testing.B) {
	c := newClock()
	k, dir := open(b, c)
	good := create(b, k, web(), time.Hour)
	key, kid := signingKey(b, k, dir)
	parts := strings.Split(good, ".")
	for name, text := range map[string]string{
		"valid":     good,
		"expired":   eddsaRaw(b, key, kid, `{"aud":"nearside-xds","jti":"0","exp":1}`),
		"audience":  eddsaRaw(b, key, kid, `{"aud":"nearside-api","jti":"0","exp":1e10}`),
		"key":       eddsaHeader(b, "EdDSA", "20200101-000000-00000000") + "." + parts[1] + "." + parts[2],
		"algorithm": eddsaHeader(b, "HS256", kid) + "." + parts[1] + "." + parts[2],
		"malformed": "Bearer",
		"huge":      strings.Repeat("A", 1<<20),
		"long":      parts[0] + "." + strings.Repeat("A", 8000-len(parts[0])) + "." + parts[2],
		"signature": parts[0] + "." + parts[1] + "." + strings.Repeat("A", 86),
		"many-texts": eddsaRaw(b, key, kid,
			`{"aud":"nearside-api","jti":"0","exp":1,"services":["a"`+strings.Repeat(`,"a"`, 1300)+`]}`),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := k.Verify(text, token.AudienceXDS); (err == nil) != (name == "valid") {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("recheck", func(b *testing.B) {
		claims, err := k.Verify(good, token.AudienceXDS)
		for b.Loop() {
			if err == nil {
				err = k.Recheck(&claims)
			}
		}
		if err != nil {
			b.Fatal(err)
		}
	})
}
