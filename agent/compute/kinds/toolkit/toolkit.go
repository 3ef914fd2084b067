// Package toolkit is what the plugins of several policy kinds share: reading confs out of rules,
// walking a draft, converting values to Envoy's messages, and checks of documents. What has one
// user stands in its plugin.
//
// A plugin is one folder below agent/compute/kinds and one line in the list of package kinds. Its
// package is the targetRef kind: conf, checks and effect. A source-destination kind (legacy) that
// it replaces stands in the folder's subfolder legacy, with its conf, effect and migration. That
// package imports the plugin's and never the other way round: its function Kind declares the kind,
// and the line in the list hands it over, as in timeout.Plugin(timeoutlegacy.Kind()).
//
// Everything here is pure and safe for concurrent use, except that a memo belongs to one caller.
package toolkit

import (
	"math"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// maxShown bounds what a message repeats of a value, in bytes.
const maxShown = 80

// Clip shortens a text of a document to what a message can show.
func Clip(s string) string { return clip.Text(s, maxShown) }

// StatName makes a name fit for one part of the name of a statistic. Envoy splits these names at
// dots, and collectors take letters, digits, underscores and hyphens alone. Names of clusters and
// listeners keep more: see [draft.StatName].
func StatName(s string) string {
	b := []byte(s)
	for i, c := range b {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' {
			b[i] = '_'
		}
	}
	return string(b)
}

// Or returns an optional value, or another one where it is not given.
func Or[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}

// Duration converts an optional span of time; nil stays nil.
func Duration(d *resource.Duration) *durationpb.Duration {
	if d == nil {
		return nil
	}
	return durationpb.New(d.Duration)
}

// UInt32 converts an optional number; nil stays nil.
func UInt32(n *uint32) *wrapperspb.UInt32Value {
	if n == nil {
		return nil
	}
	return wrapperspb.UInt32(*n)
}

// Percent converts an optional percentage; nil stays nil.
func Percent(d *resource.Decimal) *typev3.Percent {
	if d == nil {
		return nil
	}
	return &typev3.Percent{Value: d.Float()}
}

// Fraction is a percentage with the smallest denominator that holds it; 0 for nil.
func Fraction(d *resource.Decimal) *typev3.FractionalPercent {
	out := &typev3.FractionalPercent{}
	for scale := 1.0; d != nil; scale *= 100 {
		n := d.Float() * scale
		out.Numerator = uint32(math.Round(n))
		if math.Abs(n-math.Round(n)) < 1e-6 || out.Denominator == typev3.FractionalPercent_MILLION {
			break
		}
		out.Denominator++ // each is 100 times the one before
	}
	return out
}

// Exactly matches one text.
func Exactly(s string) *matcherv3.StringMatcher {
	return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: s}}
}

// Prefix matches texts that begin with one.
func Prefix(s string) *matcherv3.StringMatcher {
	return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: s}}
}

// Regex matches texts that a regular expression in the syntax of RE2 holds for as a whole.
func Regex(s string) *matcherv3.StringMatcher {
	return &matcherv3.StringMatcher{
		MatchPattern: &matcherv3.StringMatcher_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: s}},
	}
}

// Header matches requests by the value of a header.
func Header(name string, value *matcherv3.StringMatcher) *routev3.HeaderMatcher {
	return &routev3.HeaderMatcher{Name: name, HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{StringMatch: value}}
}

// HeaderPresent matches requests that have a header, or with false those that lack it.
func HeaderPresent(name string, present bool) *routev3.HeaderMatcher {
	return &routev3.HeaderMatcher{Name: name,
		HeaderMatchSpecifier: &routev3.HeaderMatcher_PresentMatch{PresentMatch: present}}
}

// HeaderMatch is how a conf matches a header.
type HeaderMatch struct {
	Type  string `json:"type,omitempty"` // Exact (the default), Prefix, RegularExpression, Present or Absent
	Name  string `json:"name"`
	Value string `json:"value,omitempty"`
}

// The types of matches.
const (
	MatchExact   = "Exact"
	MatchPrefix  = "Prefix"
	MatchRegex   = "RegularExpression"
	MatchPresent = "Present"
	MatchAbsent  = "Absent"
)

// Matchers converts the matches of headers.
func Matchers(list []HeaderMatch) []*routev3.HeaderMatcher {
	var out []*routev3.HeaderMatcher
	for _, h := range list {
		switch h.Type {
		case MatchPresent, MatchAbsent:
			out = append(out, HeaderPresent(h.Name, h.Type == MatchPresent))
		case MatchPrefix:
			out = append(out, Header(h.Name, Prefix(h.Value)))
		case MatchRegex:
			out = append(out, Header(h.Name, Regex(h.Value)))
		default:
			out = append(out, Header(h.Name, Exactly(h.Value)))
		}
	}
	return out
}

// HeaderValues are headers that a conf sets or adds.
type HeaderValues struct {
	Set []HeaderValue `json:"set,omitempty"`
	Add []HeaderValue `json:"add,omitempty"`
}

// HeaderValue is the name of a header and its value; several values are separated by commas.
type HeaderValue struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Check checks names and values; noHost says why the header host is not among them, and value
// checks a value further.
func (h *HeaderValues) Check(v *resource.Validator, noHost string, value func(*resource.Validator, string)) {
	for _, l := range []struct {
		field string
		list  []HeaderValue
	}{{"set", h.Set}, {"add", h.Add}} {
		seen := make(map[string]bool, len(l.list))
		for i, h := range l.list {
			at := v.Field(l.field).Index(i)
			at.Field("name").HeaderName(h.Name)
			switch {
			case h.Name == "host":
				at.Field("name").Faultf("%s: remove it", noHost)
			case seen[h.Name]:
				at.Field("name").Faultf("the header %s is given twice: give its values in one, separated by commas", h.Name)
			}
			seen[h.Name] = true
			at.Field("value").HeaderValue(h.Value)
			value(at.Field("value"), h.Value)
		}
	}
}

// Options converts the headers; split gives the values of one. The first replaces what is there
// where the header is set, the others are added.
func (h *HeaderValues) Options(split func(string) []string) []*corev3.HeaderValueOption {
	var out []*corev3.HeaderValueOption
	add := func(list []HeaderValue, how corev3.HeaderValueOption_HeaderAppendAction) {
		for _, h := range list {
			for i, value := range split(h.Value) {
				o := &corev3.HeaderValueOption{Header: &corev3.HeaderValue{Key: h.Name, Value: value}}
				if i == 0 {
					o.AppendAction = how
				}
				out = append(out, o)
			}
		}
	}
	add(h.Add, corev3.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD)
	add(h.Set, corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD)
	return out
}
