package accesslog

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/file/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/nearside-mesh/nearside/agent/compute/logline"
	"github.com/nearside-mesh/nearside/agent/compute/substitution"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

func templateOf(t *testing.T, text string) template {
	t.Helper()
	segs, err := substitution.ParseFormat(text, placeholders[:]...)
	if err != nil {
		t.Fatal(err)
	}
	return template{text: segs}
}

// TestFileLog checks that the direct encoding equals that of the protobuf library.
func TestFileLog(t *testing.T) {
	v := values{source: "a%b", destination: "web", direction: DirectionOutbound, address: "fd00::1", mesh: "m", zone: "z"}
	text := templateOf(t, "%KUMA_SOURCE_ADDRESS% %KUMA_SOURCE_SERVICE% %% %DURATION%")
	omit := text
	omit.omitEmpty = true
	fields := template{
		json: true, omitEmpty: true, keys: []string{"z", "a b", ""},
		values: [][]substitution.Segment{templateOf(t, "%KUMA_DESTINATION_SERVICE%").text,
			templateOf(t, "%START_TIME%").text, nil},
	}
	const line = "[fd00::1]:0 a%%b %% %DURATION%\n"
	source := func(s string) *corev3.SubstitutionFormatString {
		return &corev3.SubstitutionFormatString{Format: &corev3.SubstitutionFormatString_TextFormatSource{
			TextFormatSource: &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: s}},
		}}
	}
	withOmit := source(line)
	withOmit.OmitEmptyValues = true
	for name, c := range map[string]struct {
		t      *template
		prefix string
		want   *corev3.SubstitutionFormatString
	}{
		"text":    {&text, "", source(line)},
		"prefix":  {&text, "host:1;", source("host:1;" + line)},
		"omit":    {&omit, "", withOmit},
		"nothing": {&template{}, "", source("\n")},
		"JSON": {&fields, "", &corev3.SubstitutionFormatString{
			OmitEmptyValues: true,
			Format: &corev3.SubstitutionFormatString_JsonFormat{JsonFormat: &structpb.Struct{Fields: map[string]*structpb.Value{
				"z": structpb.NewStringValue("web"), "a b": structpb.NewStringValue("%START_TIME%"),
				"": structpb.NewStringValue(""),
			}}},
		}},
	} {
		want, err := proto.MarshalOptions{Deterministic: true}.Marshal(&filev3.FileAccessLog{
			Path: "/tmp/a.log", AccessLogFormat: &filev3.FileAccessLog_LogFormat{LogFormat: c.want},
		})
		if err != nil {
			t.Fatal(err)
		}
		got := &filev3.FileAccessLog{}
		scratch := []byte("left over")
		body := fileLog("/tmp/a.log", c.prefix, c.t, &v, &scratch)
		if err := proto.Unmarshal(body, got); err != nil {
			t.Fatal(err)
		}
		if len(body) != cap(body) {
			t.Errorf("%s: capacity of %d bytes for %d bytes", name, cap(body), len(body))
		}
		if err := got.ValidateAll(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if string(body) != string(want) {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

// TestDefaults checks that the default formats are valid and that the one for connections has no
// operators for requests.
func TestDefaults(t *testing.T) {
	templateOf(t, defaultHTTP)
	tcp := templateOf(t, defaultTCP)
	if op := tcp.aboutRequests(); op != "" {
		t.Errorf("the format for connections contains %s", op)
	}
	seen := map[string]string{}
	v := values{source: "1", destination: "2", direction: "3", address: "4", mesh: "5", zone: "6", workload: "7"}
	for _, p := range placeholders {
		s, format := v.of(p)
		if format {
			t.Errorf("%s is left to Envoy without client certificates", p)
		}
		if other, ok := seen[s]; ok || s == "" {
			t.Errorf("%s has the value %q, as %s", p, s, other)
		}
		seen[s] = p
	}
}

// TestPeer checks that the formats for a peer are valid.
func TestPeer(t *testing.T) {
	v := values{source: unknownService, address: "192.168.0.1", peer: true}
	for placeholder, operators := range map[string]string{
		sourceAddress: "DOWNSTREAM_DIRECT_REMOTE_ADDRESS",
		sourceIP:      "DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT",
		sourceService: "CEL",
	} {
		text, format := v.of(placeholder)
		if !format || !strings.HasPrefix(text, "%"+operators+"(") && text != "%"+operators+"%" ||
			!strings.HasSuffix(text, "%") {
			t.Errorf("%s is %q, a format: %v", placeholder, text, format)
		}
		got := string(substitution.AppendFormat(nil, templateOf(t, "100%% %"+placeholder+"%").text, v.of))
		if got != "100%% "+text {
			t.Errorf("%s results in the format %q", placeholder, got)
		}
	}
}

// TestFIFOName checks that names are unique, stable, and within their limit.
func TestFIFOName(t *testing.T) {
	seen := map[string]bool{}
	for _, name := range []string{"web", strings.Repeat("a", 253), strings.Repeat("a", 252) + "b"} {
		for _, limit := range []int{200, 85, 40, 35, 0, -50} {
			for _, addr := range []string{"a:1", "b:1"} {
				s := []string{addr, ""}
				got := fifoName(limit, resource.Key{Mesh: "default", Name: name}, s)
				if second := fifoName(limit, resource.Key{Mesh: "default", Name: name}, s); second != got {
					t.Errorf("unstable name: %q, then %q", got, second)
				}
				if len(got) > max(limit, minFIFOName) || strings.Contains(got, "/") || !strings.HasPrefix(got, "nearside-") {
					t.Errorf("limit %d: %q has %d bytes", limit, got, len(got))
				}
				key := fmt.Sprint(limit, got)
				if seen[key] {
					t.Errorf("%q is not unique", got)
				}
				seen[key] = true
			}
		}
	}
	// Envoy holds FIFOs open by name: a changed name makes every proxy open another FIFO.
	if got, want := fifoName(200, resource.Key{Mesh: "default", Name: "web"}, []string{"127.0.0.1:5000", ""}),
		"nearside-default.web-8e8c96e89c079624.fifo"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestPlaceholders checks that readers of lines know all placeholders of formats.
func TestPlaceholders(t *testing.T) {
	if got := logline.Placeholders(); !slices.Equal(got, placeholders[:]) {
		t.Errorf("logline.Placeholders: %q, want %q", got, placeholders)
	}
}
