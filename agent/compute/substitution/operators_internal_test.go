package substitution

import "testing"

func TestOperatorsAreSortedAndUnique(t *testing.T) {
	for i := 1; i < len(operators); i++ {
		if operators[i-1].name >= operators[i].name {
			t.Errorf("%s stands before %s", operators[i-1].name, operators[i].name)
		}
	}
	if n := len(operators); n < 120 {
		t.Errorf("%d operators", n)
	}
}

func TestNearest(t *testing.T) {
	for name, want := range map[string]string{
		"RESPONCE_CODE": "RESPONSE_CODE", "UPSTREAM_HOTS": "UPSTREAM_HOST", "KUMA_SOURCE_SERVIC": "KUMA_SOURCE_SERVICE",
		"QQQQQQQQ": "", "": "", "BYTES_RECIEVED": "BYTES_RECEIVED",
	} {
		if got := nearest(name, []string{"KUMA_SOURCE_SERVICE"}); got != want {
			t.Errorf("%q: got %q, want %q", name, got, want)
		}
	}
}
