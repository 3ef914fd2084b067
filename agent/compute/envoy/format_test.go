package envoy_test

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nearside-mesh/nearside/agent/compute/substitution"
)

const defaultFormat = `[%START_TIME%] "%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %PROTOCOL%" %RESPONSE_CODE% %RESPONSE_FLAGS% ` +
	`%BYTES_RECEIVED% %BYTES_SENT% %DURATION% %RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)% "%REQ(X-FORWARDED-FOR)%" "%UPSTREAM_HOST%"` + "\n"

// TestAccepted checks formats that every Envoy accepts.
func TestAccepted(t *testing.T) {
	for _, format := range []string{
		"", "text", "100%%", "%%DURATION%%", "%DURATION%%BYTES_SENT%", "%%%DURATION%", defaultFormat,
		"%REQ(x)%", "%REQ(X-Forwarded-For?:authority):5%", "%RESP(server):0%", "%TRAILER(grpc-message):7%",
		"%START_TIME%", "%START_TIME(%s)%", "%START_TIME(%Y/%m/%dT%H:%M:%S%z %3f)%", "%START_TIME()%", "%EMIT_TIME(%f)%",
		"%DYNAMIC_METADATA(a:b)%", "%DYNAMIC_METADATA(a)%", "%DYNAMIC_METADATA(a:b):9%", "%UPSTREAM_PROTOCOL%",
		"%BYTES_RETRANSMITTED%", "%PACKETS_RETRANSMITTED%", "%REQ(a):99999999999%", "%FILTER_STATE(key)%",
		"%FILTER_STATE(key:PLAIN):10%", "%UPSTREAM_FILTER_STATE(key:FIELD:name)%", "%COMMON_DURATION(DS_RX_BEG:DS_TX_END)%",
		"%COMMON_DURATION(DS_RX_BEG:mine:us)%", "%GRPC_STATUS%", "%GRPC_STATUS(NUMBER)%", "%ENVIRONMENT(HOME):3%",
		"%RESPONSE_CODE_DETAILS%", "%DOWNSTREAM_PEER_URI_SAN%", "%CEL(request.path)%",
		`%CEL(re.extract(request.path, "^/(.*)$", "\\1")):7%`, "%CEL((a))% (b)%%", "%UPSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%",
		"%DOWNSTREAM_DIRECT_REMOTE_PORT%", "%UPSTREAM_DECOMPRESSED_HEADER_BYTES_SENT%", "ä%DURATION%ö",
	} {
		segs, err := substitution.ParseFormat(format)
		if err != nil {
			t.Errorf("%q: %v", format, err)
			continue
		}
		var raw strings.Builder
		for _, s := range segs {
			raw.WriteString(s.Raw)
		}
		if raw.String() != format {
			t.Errorf("%q: the pieces make %q", format, raw.String())
		}
	}
}

func TestRefused(t *testing.T) {
	for _, c := range []struct {
		format string
		pos    int
		near   string
		words  string
	}{
		{"%req(x)%", 0, "REQ", "upper case"},
		{"%DURATION%%", 10, "", "no operator begins"},
		{"100%", 3, "", "write %% for a percent sign"},
		{"a 50% b", 4, "", "no operator begins"},
		{"%PROTOCOL %", 0, "", "%PROTOCOL is not closed"},
		{"%DURATON%", 0, "DURATION", "no operator"},
		{"%START_TMIE%", 0, "START_TIME", "no operator"},
		{"ok %RESPONSE_CODES%", 3, "RESPONSE_CODE", "no operator"},
		{"%XYZ%", 0, "", "no operator"},
		{"%METADATA(ODD:a:b)%", 0, "", "begin with DYNAMIC"},
		{"%PATH(FOO)%", 0, "", "WQ or NQ"},
		{"%UPSTREAM_LOCAL_SUBJECT%", 0, "DOWNSTREAM_LOCAL_SUBJECT", "no operator"},
		{"%REQ%", 0, "", "needs an argument: write %REQ(header-name)%"},
		{"%REQ()%", 0, "", "needs an argument"},
		{"%REQ(a?b?c)%", 0, "", "one alternative"},
		{"%REQ(a b)%", 0, "", "not a header name"},
		{"%REQ(a?)%", 0, "", "not a header name"},
		{"%REQ(a", 0, "", "not closed"},
		{"%REQ(a)", 0, "", "not closed"},
		{"%REQ(a\nb)%", 0, "", "line break"},
		{"%REQ(a):x%", 0, "", "not closed"},
		{"%REQ(a):99999999999999999999%", 0, "", "not closed"},
		{"%COALESCE(null)%", 0, "", "give a JSON object"}, // Envoy crashes
		{"%COALESCE(5)%", 0, "", "give a JSON object"},
		{`%COALESCE("x")%`, 0, "", "give a JSON object"},
		{`%COALESCE({"operators":["REQ(x)"]})%`, 0, "", `operator 0: there is no operator "REQ(x)"`},
		{"%DURATION:x%", 0, "", "is not a number"},
		{"%DURATION(ms)%", 0, "", "takes no argument"},
		{"%DURATION():5%", 0, "", "takes no length"},
		{"%DURATION:5%", 0, "", "takes no length"},
		{"%START_TIME:5%", 0, "", "takes no length"},
		{"%CLUSTER_METADATA(a:b):5%", 0, "", "takes no length"},
		{"%DYNAMIC_METADATA%", 0, "", "write %DYNAMIC_METADATA(namespace:key)%"},
		{"%START_TIME(%n)%", 0, "", "line break"},
		{"%START_TIME(%-En)%", 0, "", "line break"},
		{"%GRPC_STATUS(number)%", 0, "", "CAMEL_STRING"},
		{"%COMMON_DURATION(a)%", 0, "", "two points"},
		{"%COMMON_DURATION(a:b:s)%", 0, "", "ms, us or ns"},
		{"%FILTER_STATE%", 0, "", "needs an argument: write %FILTER_STATE(key)%"},
		{"%FILTER_STATE(:PLAIN)%", 0, "", "the key is empty"},
		{"%FILTER_STATE(k:JSON)%", 0, "", "PLAIN, TYPED or FIELD"},
		{"%FILTER_STATE(k:FIELD)%", 0, "", "go together"},
		{"%FILTER_STATE(k:PLAIN:f)%", 0, "", "go together"},
		{"a\x00b", 1, "", "NUL"},
		{strings.Repeat("x", substitution.MaxFormat+1), substitution.MaxFormat, "", "at most 65536"},
		{"%MINE(x)%", 0, "", "takes no argument and no length"},
		{"%MNE%", 0, "MINE", "no operator"},
	} {
		_, err := substitution.ParseFormat(c.format, "MINE")
		var fe *substitution.FormatError
		if !errors.As(err, &fe) {
			t.Errorf("%.80q: got %v, want a FormatError", c.format, err)
			continue
		}
		if fe.Pos != c.pos || fe.Near != c.near || !strings.Contains(fe.Reason, c.words) {
			t.Errorf("%.80q: got %+v, want position %d, near %q and %q", c.format, fe, c.pos, c.near, c.words)
		}
		if c.near != "" && !strings.HasSuffix(err.Error(), "; did you mean %"+c.near+"%?") {
			t.Errorf("%.80q: the message is %q", c.format, err)
		}
	}
}

func TestSegments(t *testing.T) {
	got, err := substitution.ParseFormat("a%% %REQ(x?y):5%%MINE%%START_TIME(%s)%", "MINE")
	if err != nil {
		t.Fatal(err)
	}
	want := []substitution.Segment{
		{Raw: "a%% ", Text: "a% ", Length: -1},
		{Raw: "%REQ(x?y):5%", Operator: "REQ", Arg: "x?y", Length: 5},
		{Raw: "%MINE%", Operator: "MINE", Length: -1, Placeholder: true},
		{Raw: "%START_TIME(%s)%", Operator: "START_TIME", Arg: "%s", Length: -1},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	for i, http := range []bool{false, true, false, false} {
		if got[i].HTTP() != http {
			t.Errorf("%q: HTTP is %v", got[i].Raw, !http)
		}
	}
}

// TestAppendFormat checks that a percent sign in a value is escaped, so that Envoy does not read it
// as an operator.
func TestAppendFormat(t *testing.T) {
	segs, err := substitution.ParseFormat("%MINE%|%DURATION%|%%", "MINE")
	if err != nil {
		t.Fatal(err)
	}
	got := string(substitution.AppendFormat([]byte("> "), segs, func(string) (string, bool) {
		return "%DURATION%, 100%", false
	}))
	if want := "> %%DURATION%%, 100%%|%DURATION%|%%"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestJSONFormat(t *testing.T) {
	segs, faults := substitution.ParseJSONFormat([]substitution.Field{
		{Key: "a", Value: "%DURATION%"}, {Key: "", Value: "x"}, {Key: "a", Value: "y"}, {Key: "%b", Value: "%NO%"},
		{Key: "c", Value: ""},
	})
	var got []string
	for _, f := range faults {
		got = append(got, f.Error())
	}
	want := []string{
		"field 1: the key: it is empty: give the field a name",
		`field 2: the key: "a" is already the key of field 0: each field has its own`,
		"field 3: the value: at position 0: there is no operator %NO%",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if len(segs[0]) != 1 || segs[0][0].Operator != "DURATION" || len(segs[4]) != 0 {
		t.Errorf("the pieces are %v", segs)
	}
}

// envoyCommand is the part of Envoy's regular expression for operators that all versions share.
var envoyCommand = regexp.MustCompile(`^%([A-Z0-9_]+)(?:\(([^)\n]*)\))?(?::([0-9]+))?%`)

func FuzzParseFormat(f *testing.F) {
	for _, s := range []string{
		defaultFormat, "100%", "%%", "%DURATION%%", "%REQ(x):5%", "%req(x)%", "%START_TIME(%n)%", "%A(", "%:5%", "%MINE%",
		"%REQ(\xff)%",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		segs, err := substitution.ParseFormat(s, "MINE")
		if err != nil {
			var fe *substitution.FormatError
			if !errors.As(err, &fe) || fe.Pos < 0 || fe.Pos > len(s) || err.Error() == "" {
				t.Fatalf("%q: %v", s, err)
			}
			return
		}
		rest := s
		for _, seg := range segs {
			if !strings.HasPrefix(rest, seg.Raw) || seg.Raw == "" {
				t.Fatalf("%q: the piece %q does not stand at %q", s, seg.Raw, rest)
			}
			m := envoyCommand.FindStringSubmatch(rest)
			if (seg.Operator != "") != (m != nil && !strings.HasPrefix(rest, "%%")) {
				t.Fatalf("%q: Envoy finds %q at %q, the piece is %+v", s, m, rest, seg)
			}
			if seg.Operator != "" && (m[0] != seg.Raw || m[1] != seg.Operator || m[2] != seg.Arg) {
				t.Fatalf("%q: Envoy finds %q at %q, the piece is %+v", s, m, rest, seg)
			}
			rest = rest[len(seg.Raw):]
		}
		if rest != "" {
			t.Fatalf("%q: nothing was made of %q", s, rest)
		}
		filled := string(substitution.AppendFormat(nil, segs, func(string) (string, bool) { return s, false }))
		if _, err := substitution.ParseFormat(filled); err != nil && len(filled) <= substitution.MaxFormat {
			t.Fatalf("%q with values in place is %q: %v", s, filled, err)
		}
	})
}

// TestArgument checks that an argument ends where Envoy ends it.
func TestArgument(t *testing.T) {
	for format, want := range map[string]substitution.Segment{
		"%CEL(f(x))%":     {Operator: "CEL", Arg: "f(x)", Length: -1},
		"%CEL(f(x)):3%":   {Operator: "CEL", Arg: "f(x)", Length: 3},
		"%CEL(f(x):y)%":   {Operator: "CEL", Arg: "f(x):y", Length: -1},
		"%CEL(a)% (b)%%":  {Operator: "CEL", Arg: "a", Length: -1},
		"%CEL(f(:1) ):2%": {Operator: "CEL", Arg: "f(:1) ", Length: 2},
	} {
		segs, err := substitution.ParseFormat(format)
		if err != nil {
			t.Errorf("%q: %v", format, err)
			continue
		}
		want.Raw = segs[0].Raw
		if diff := cmp.Diff(want, segs[0]); diff != "" {
			t.Errorf("%q (-want +got):\n%s", format, diff)
		}
	}
	for _, format := range []string{"%CEL(f(x):9)", "%CEL(f(x):99999999999999999999%", "%CEL(f(x)\n)%"} {
		if _, err := substitution.ParseFormat(format); err == nil {
			t.Errorf("%q is accepted", format)
		}
	}
}
