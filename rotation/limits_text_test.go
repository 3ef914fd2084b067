package rotation_test

import (
	"testing"

	"github.com/nearside-mesh/nearside/rotation"
)

// TestLimitsText checks that ParseLimits inverts Text and refuses other input.
func TestLimitsText(t *testing.T) {
	for _, l := range []rotation.Limits{
		{}, {MaxFileSize: 200, MaxFiles: 10}, {MaxFileSize: rotation.Unset, MaxFileAge: rotation.Unset},
	} {
		text := l.Text()
		got, err := rotation.ParseLimits(text)
		if err != nil || got != l {
			t.Errorf("%q: %+v, want %+v: %v", text, got, l, err)
		}
	}
	for _, text := range []string{"", "1 2", "1 2 3 4", "1 x 3", "99999999999999999999 1 1"} {
		if _, err := rotation.ParseLimits(text); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}

// TestLimitsOr checks that Or replaces unset limits, but not zero.
func TestLimitsOr(t *testing.T) {
	own := rotation.Limits{MaxFileSize: rotation.Unset, MaxFiles: 0, MaxFileAge: 3}
	want := rotation.Limits{MaxFileSize: 7, MaxFiles: 0, MaxFileAge: 3}
	if got := own.Or(rotation.Limits{MaxFileSize: 7, MaxFiles: 8, MaxFileAge: 9}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
