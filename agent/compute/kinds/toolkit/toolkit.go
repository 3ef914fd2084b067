// Package toolkit contains code shared by the plugins of several policy kinds: access to the confs
// of rules, iteration over drafts, conversion to Envoy's messages, and validation. Code with a
// single user belongs to its plugin.
//
// A plugin is one folder below agent/compute/kinds and one line in the list of package kinds. Its
// package implements the targetRef kind: conf, validation, and effect. The subfolder legacy
// implements the source-destination kind that it replaces, with conf, effect, and migration. It
// imports the plugin's package, never the reverse: its function Kind declares the kind, and the
// line in the list passes it on, as in timeout.Plugin(timeoutlegacy.Kind()).
//
// All functions are pure and safe for concurrent use, except that a memo belongs to one caller.
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

// maxShown limits how many bytes of a value a message repeats.
const maxShown = 80

// Clip truncates text from a document for use in a message.
func Clip(s string) string { return clip.Text(s, maxShown) }

// StatName replaces characters so that the name is valid as one segment of a statistic's name.
// Envoy splits statistic names at dots, and collectors accept only letters, digits, underscores,
// and hyphens. Names of clusters and listeners preserve more: see [draft.StatName].
func StatName(s string) string {
	b := []byte(s)
	for i, c := range b {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' {
			b[i] = '_'
		}
	}
	return string(b)
}

// Or returns *p, or otherwise if p is nil.
func Or[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}

// Duration converts an optional duration; nil stays nil.
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

// Fraction converts a percentage to a fraction with the smallest sufficient denominator. It returns
// 0 for nil.
func Fraction(d *resource.Decimal) *typev3.FractionalPercent {
	out := &typev3.FractionalPercent{}
	for scale := 1.0; d != nil; scale *= 100 {
		n := d.Float() * scale
		out.Numerator = uint32(math.Round(n))
		if math.Abs(n-math.Round(n)) < 1e-6 || out.Denominator == typev3.FractionalPercent_MILLION {
			break
		}
		out.Denominator++ // each denominator is 100 times the previous one
	}
	return out
}

// Exactly returns a matcher for one string.
func Exactly(s string) *matcherv3.StringMatcher {
	return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: s}}
}

// Prefix returns a matcher for strings with a prefix.
func Prefix(s string) *matcherv3.StringMatcher {
	return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: s}}
}

// Regex returns a matcher for strings that an RE2 regular expression matches entirely.
func Regex(s string) *matcherv3.StringMatcher {
	return &matcherv3.StringMatcher{
		MatchPattern: &matcherv3.StringMatcher_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: s}},
	}
}

// Header returns a matcher for requests by the value of a header.
func Header(name string, value *matcherv3.StringMatcher) *routev3.HeaderMatcher {
	return &routev3.HeaderMatcher{Name: name, HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{StringMatch: value}}
}

// HeaderPresent returns a matcher for requests that have the header or, if present is false, do not
// have it.
func HeaderPresent(name string, present bool) *routev3.HeaderMatcher {
	return &routev3.HeaderMatcher{Name: name,
		HeaderMatchSpecifier: &routev3.HeaderMatcher_PresentMatch{PresentMatch: present}}
}

// HeaderMatch is a header condition in a conf.
type HeaderMatch struct {
	Type  string `json:"type,omitempty"` // Exact (the default), Prefix, RegularExpression, Present or Absent
	Name  string `json:"name"`
	Value string `json:"value,omitempty"`
}

// Types of HeaderMatch.
const (
	MatchExact   = "Exact"
	MatchPrefix  = "Prefix"
	MatchRegex   = "RegularExpression"
	MatchPresent = "Present"
	MatchAbsent  = "Absent"
)

// Matchers converts header conditions.
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

// HeaderValues are the headers that a conf sets or adds.
type HeaderValues struct {
	Set []HeaderValue `json:"set,omitempty"`
	Add []HeaderValue `json:"add,omitempty"`
}

// HeaderValue is a header name and its value. Multiple values are separated by commas.
type HeaderValue struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Check validates names and values. noHost explains why the header host is not allowed, and check
// validates each value further.
func (h *HeaderValues) Check(v *resource.Validator, noHost string, check func(*resource.Validator, string)) {
	for _, l := range []struct {
		field string
		list  []HeaderValue
	}{{"set", h.Set}, {"add", h.Add}} {
		seen := make(map[string]bool, len(l.list))
		for i, h := range l.list {
			at := v.Field(l.field).Index(i)
			CheckHeader(at.Field("name"), at.Field("value"), h, seen, noHost, check)
		}
	}
}

// CheckHeader validates one header of a list with its names seen so far, and adds its name. The
// validators are those of its name and value; noHost and check are as for [HeaderValues.Check].
func CheckHeader(name, value *resource.Validator, h HeaderValue, seen map[string]bool, noHost string,
	check func(*resource.Validator, string)) {
	name.HeaderName(h.Name)
	switch {
	case h.Name == "host":
		name.Faultf("%s: remove it", noHost)
	case seen[h.Name]:
		name.Faultf("the header %s is given twice: give its values in one entry, separated by commas", Clip(h.Name))
	}
	seen[h.Name] = true
	value.HeaderValue(h.Value)
	check(value, h.Value)
}

// Put appends a header to Add or, if add is false, to Set.
func (h *HeaderValues) Put(v HeaderValue, add bool) {
	list := &h.Set
	if add {
		list = &h.Add
	}
	*list = append(*list, v)
}

// Options converts the headers. split returns the values of one header. With Set, the first value
// replaces the header and the others are added.
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
