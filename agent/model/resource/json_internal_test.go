package resource

import (
	"reflect"
	"strings"
	"testing"
)

// samePlain holds what reads plain JSON against what reads all JSON: it gives up, or both have the
// same.
func samePlain(t *testing.T, text string, lim Limits, budget int) (plain bool) {
	t.Helper()
	got, used, line := parsePlainJSON([]byte(text), 3, lim, budget)
	if got == nil {
		return false
	}
	want, wantUsed, wantLine := parseAnyJSON([]byte(text), 3, lim, budget)
	if !reflect.DeepEqual(got, want) || used != wantUsed || line != wantLine {
		t.Errorf("%q within %d: %+v to %d in line %d, want %+v to %d in line %d", text, budget, got, used, line, want,
			wantUsed, wantLine)
	}
	return true
}

func TestPlainJSON(t *testing.T) {
	lim := Limits{}.withDefaults()
	for text, plain := range map[string]bool{
		`{}`: true, `[]`: true, `{"a":[1,-2,0,{"b":null}],"c":true,"d":false,"e":""}`: true,
		" {\n \"a\" :\n [ 1 ,\n2 ] }\n{}": true, `{"a":1} {"b":2}`: true, `123456789012345678`: true, `{"a":1,"a":2}`: true,
		`{"a":"\u0041"}`: false, `{"ä":1}`: false, `{"a":1.5}`: false, `[1e3]`: false, `[01]`: false, `[-0]`: false,
		`[1,]`: false, `{"a":}`: false, `{"a" 1}`: false, `{a:1}`: false, `[1 2]`: false, `{"a":1`: false, `tru`: false,
		"[\"a\nb\"]": false, "[\"\x7f\"]": false, `[-]`: false, ``: false, `12345678901234567890`: false, `{"a":1]`: false,
	} {
		if got := samePlain(t, text, lim, 100); got != plain {
			t.Errorf("%q: plain %v", text, got)
		}
	}
	deep := strings.Repeat("[", 64) + strings.Repeat("]", 64)
	if !samePlain(t, deep, lim, 100) || samePlain(t, "["+deep+"]", lim, 100) || samePlain(t, "[1,2,3]", lim, 3) ||
		!samePlain(t, "[1,2,3]", lim, 4) {
		t.Error("the bounds of depth and number are others")
	}
}

func FuzzPlainJSON(f *testing.F) {
	for _, text := range []string{
		`{"a":[1,-2,0,{"b":null}],"c":true}`, " {\n\"a\" :\n[ 1 ,\n2 ] }\n{}",
		`[1e3,"\n"]`, `{"type":"Mesh","name":"default"}`,
	} {
		f.Add(text, 50)
	}
	f.Fuzz(func(t *testing.T, text string, budget int) { samePlain(t, text, Limits{Depth: 5}, budget) })
}
