package clip_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/base/clip"
)

// TestSecrets checks that keys are redacted in all their forms, complete and truncated.
func TestSecrets(t *testing.T) {
	for range 50 {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		der, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		block := string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
		for _, text := range []string{
			block, block[:150], fmt.Sprintf("%q", block), strings.ReplaceAll(block, "\n", " "),
			strings.Split(block, "\n")[1], base64.StdEncoding.EncodeToString(der), base64.RawURLEncoding.EncodeToString(der),
			base64.StdEncoding.EncodeToString([]byte(block)), strings.ReplaceAll(block, "-----BEGIN PRIVATE KEY-----\n", ""),
			url.PathEscape(block), url.QueryEscape(fmt.Sprintf("%q", block)), url.QueryEscape(url.QueryEscape(block)),
			url.QueryEscape(base64.StdEncoding.EncodeToString(der)),
		} {
			got := clip.Secrets("before " + text + " after")
			body := strings.Join(strings.Split(strings.TrimSpace(block), "\n")[1:4], "")
			encoded := base64.StdEncoding.EncodeToString([]byte(block))
			for _, secret := range []string{body, encoded, base64.RawURLEncoding.EncodeToString(der)} {
				for i := 0; i+24 <= len(secret); i++ {
					if strings.Contains(clip.Unescaped(got), secret[i:i+24]) {
						t.Fatalf("%q leaves %q", text, got)
					}
				}
			}
			if !strings.Contains(got, clip.Redacted) || !strings.HasPrefix(got, "before ") && strings.Contains(text, "BEGIN") {
				t.Errorf("%q became %q", text, got)
			}
		}
	}
}

// TestSecretsStay checks texts that contain no secrets.
func TestSecretsStay(t *testing.T) {
	for _, s := range []string{
		"", "short", "no filter chain fits at server_names: Envoy closes the connection",
		"type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
		"/var/lib/nearside/identity/default/ca-backend-1.pem",
		"spec.default.appendModifications[0].networkFilter.jsonPatches[12].value",
		"meshpassthrough_tls_www-example-com_443", "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
		"envoy/extensions/upstreams/http/v3/HttpProtocolOptions",
		"default_backend-with-a-very-long-name__default_msvc_6379",
		"/tmp/TestWritesThatCannotBeKept3104893/001/nowhere/state",
		"-----BEGIN CERTIFICATE-----", "6ba7b810-9dad-11d1-80b4-00c04fd430c8", "identity_cert:secret:default",
	} {
		if got := clip.Secrets(s); got != s {
			t.Errorf("%q became %q", s, got)
		}
	}
}
