package identity

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// TestNothingPrintsAKey prints every type that holds a key with every verb and with both handlers
// of slog.
func TestNothingPrintsAKey(t *testing.T) {
	p, err := newRoot("default", "ca", 0, time.Hour, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	key, err := p.keyPEM()
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(key)
	forms := []string{
		fmt.Sprint(key[40:60]), fmt.Sprint(block.Bytes[36:50]), fmt.Sprintf("%x", key[40:60]),
		hex.EncodeToString(block.Bytes[36:50]), string(key[40:64]), base64.StdEncoding.EncodeToString(key)[60:84],
		strings.Trim(fmt.Sprintf("%#v", key[40:50]), "[]byte{}"),
	}
	a := &authority{pair: p, backend: "ca"}
	held := &proxy{mesh: "default", name: "web", pair: p, key: key, issuer: a,
		secrets: &Secrets{chain: p.certPEM(), key: key}}
	b := &backend{mesh: "default", name: "ca", list: []*authority{a}}
	for _, v := range []any{
		p, *p, a, *a, held, *held, held.secrets, *held.secrets, b, *b, []*authority{a}, []authority{*a},
		map[string]*proxy{"x": held},
		map[string]proxy{"x": *held}, struct{ P *pair }{p}, &meshState{signer: a, backends: map[string]*backend{"ca": b}},
	} {
		var out []string
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d"} {
			out = append(out, fmt.Sprintf(verb, v))
		}
		if doc, err := json.Marshal(v); err == nil {
			out = append(out, string(doc))
		}
		var log bytes.Buffer
		slog.New(slog.NewTextHandler(&log, nil)).Info("x", "v", v)
		slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "v", v)
		for _, text := range append(out, log.String()) {
			for _, f := range forms {
				if strings.Contains(text, f) {
					t.Errorf("%T prints %q in %q", v, f, text)
				}
			}
		}
	}
}
