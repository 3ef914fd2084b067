package substitution_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/substitution"
)

func linesOf(t testing.TB, format string, names ...string) (*substitution.Lines, error) {
	t.Helper()
	segs, err := substitution.ParseFormat(format)
	if err != nil {
		t.Fatal(err)
	}
	return substitution.NewLines(segs, names...)
}

// TestLines checks that values are read from where the format wrote them, whatever clients put into
// other values.
func TestLines(t *testing.T) {
	const name, flags, to = "REQUESTED_SERVER_NAME", "RESPONSE_FLAGS", "DOWNSTREAM_LOCAL_ADDRESS"
	for _, c := range []struct {
		format, line string
		want         []string // nil if the line does not have the format
	}{
		{"%RESPONSE_FLAGS% 100%% %REQUESTED_SERVER_NAME%", "NR 100% a.example", []string{"a.example", "NR", ""}},
		{"[%START_TIME%] %RESPONSE_FLAGS% %DOWNSTREAM_LOCAL_ADDRESS%", "[2026-11-23T04:28:29.613Z] UH [2001:db8::1]:443",
			[]string{"", "UH", "[2001:db8::1]:443"}},
		{"%RESPONSE_FLAGS%|%REQUESTED_SERVER_NAME%", "NR|", []string{"", "NR", ""}},
		{"%RESPONSE_FLAGS%|%REQUESTED_SERVER_NAME%", "NR|a b", nil},
		{"%RESPONSE_FLAGS%|%REQUESTED_SERVER_NAME%|x", "NR|a|y|x", nil},
		{"%RESPONSE_FLAGS%|x", "NR|xx", nil},
		// The value of a header cannot imitate the values around it.
		{"%REQ(USER-AGENT)% %RESPONSE_FLAGS% %DOWNSTREAM_LOCAL_ADDRESS%", "x NR 10.0.0.1:443 - 10.0.0.2:80",
			[]string{"", "-", "10.0.0.2:80"}},
		{"%RESPONSE_FLAGS% %REQ(USER-AGENT)% %DOWNSTREAM_LOCAL_ADDRESS%", "- 10.0.0.1:443\tNR 10.0.0.2:80",
			[]string{"", "-", "10.0.0.2:80"}},
	} {
		l, err := linesOf(t, c.format, name, flags, to)
		if err != nil {
			t.Fatalf("%s: %v", c.format, err)
		}
		got, ok := l.Read(c.line)
		if ok != (c.want != nil) || ok && !slices.Equal(got, c.want) {
			t.Errorf("%s, %q: %q %t, want %q", c.format, c.line, got, ok, c.want)
		}
	}
	for format, want := range map[string]string{
		"%RESPONSE_FLAGS%%REQUESTED_SERVER_NAME% x":                  "nothing stands between",
		"%REQ(A)% %REQUESTED_SERVER_NAME% %REQ(B)%":                  "the value of %REQ(A)% before it",
		"%REQUESTED_SERVER_NAME%.%REQ(B)%":                           "its value may hold the text that follows it",
		"%RESPONSE_FLAGS%\n%REQUESTED_SERVER_NAME%":                  "line break",
		"%START_TIME(%Y %m)% %REQUESTED_SERVER_NAME% %ROUTE_NAME% -": "ambiguous",
	} {
		if _, err := linesOf(t, format, name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", format, err, want)
		}
	}
}

// TestLinesOfSome checks that an ambiguous value is omitted with a reason. If an operator occurs
// twice, the unambiguous occurrence is read.
func TestLinesOfSome(t *testing.T) {
	segs, err := substitution.ParseFormat("%REQ(A)% %RESPONSE_FLAGS% %REQ(B)% %RESPONSE_CODE% %UPSTREAM_CLUSTER%")
	if err != nil {
		t.Fatal(err)
	}
	l, err := substitution.NewLinesOfSome(segs, "RESPONSE_FLAGS", "RESPONSE_CODE", "DURATION", "UPSTREAM_CLUSTER")
	if err != nil {
		t.Fatal(err)
	}
	if l.Has(0) || !l.Has(1) || l.Has(2) || l.Hidden(0) == nil || l.Hidden(1) != nil || l.Hidden(2) != nil {
		t.Errorf("flags: %v %v, code: %v %v, duration: %v %v", l.Has(0), l.Hidden(0), l.Has(1), l.Hidden(1), l.Has(2),
			l.Hidden(2))
	}
	if got, ok := l.Read("x 200 y - 503 z 404 a_b"); !ok || !slices.Equal(got, []string{"", "404", "", "a_b"}) {
		t.Errorf("%q %v", got, ok)
	}
	segs, _ = substitution.ParseFormat("%REQ(A)% %RESPONSE_CODE% %REQ(B)% %RESPONSE_CODE%")
	if l, err = substitution.NewLinesOfSome(segs, "RESPONSE_CODE"); err != nil || !l.Has(0) || l.Hidden(0) != nil {
		t.Errorf("%v %v", err, l)
	}
}

// FuzzLines checks that each value that is read from a line is part of that line.
func FuzzLines(f *testing.F) {
	f.Add("%RESPONSE_FLAGS% %REQ(A)% %REQUESTED_SERVER_NAME%", "NR x y a.example")
	f.Fuzz(func(t *testing.T, format, line string) {
		segs, err := substitution.ParseFormat(format)
		if err != nil {
			return
		}
		l, err := substitution.NewLines(segs, "REQUESTED_SERVER_NAME", "RESPONSE_FLAGS")
		if err != nil {
			return
		}
		got, ok := l.Read(line)
		if repeated, same := l.Read(line); same != ok || !slices.Equal(got, repeated) {
			t.Fatalf("%q, then %q", got, repeated)
		}
		for _, v := range got {
			if !strings.Contains(line, v) {
				t.Fatalf("%q is not in the line", v)
			}
		}
	})
}
