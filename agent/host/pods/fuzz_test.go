package pods

import (
	"encoding/json"
	"strings"
	"testing"
)

// FuzzDecode checks that a decoded registration has only names that are safe in paths, node ids,
// and messages.
func FuzzDecode(f *testing.F) {
	f.Add("u-1", []byte(`{"uid":"u-1","namespace":"shop","name":"web-0","serviceAccount":"default"}`))
	f.Add("..", []byte(`{"uid":"..","namespace":"a","name":"b"}`))
	f.Add("u", []byte(`{"uid":"u","namespace":"a","name":"b.c","later":{}}`))
	f.Fuzz(func(t *testing.T, uid string, b []byte) {
		p, err := decode(uid, b)
		if err != nil {
			return
		}
		all := p.UID + p.Namespace + p.Name + p.ServiceAccount
		if p.UID != uid || strings.ContainsAny(all, "/\x00\n *\"") || strings.Contains(all, "..") ||
			strings.Contains(p.Namespace, ".") || p.Name == "" || p.Namespace == "" {
			t.Errorf("accepted %+v", p)
		}
		text, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		if q, err := decode(uid, text); err != nil || *q != *p {
			t.Errorf("%s: got %+v, %v", text, q, err)
		}
	})
}
