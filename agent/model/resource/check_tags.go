package resource

import (
	"reflect"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/strict"
)

// bounds checks a decoded field by its tag "check". The tag is positive, timeout, atLeastOne,
// percent, percentage, or port, like the methods of Validator; someItems for a list that must not
// be empty; or the allowed values, separated by bars. An absent field passes.
func bounds(d *strict.Decoder, f *strict.Field, n *strict.Node, field reflect.Value, clean bool) {
	if f.Check == "" || !clean {
		return
	}
	var faults []Fault
	v := NewValidator("", &faults)
	span, _ := field.Interface().(*Duration)
	number, _ := field.Interface().(*uint32)
	decimal, _ := field.Interface().(*Decimal)
	switch f.Check {
	case "someItems":
		if n.Kind == strict.List && len(n.Items) == 0 {
			v.Faultf("the list is empty: give at least one item")
		}
	case "positive":
		v.Positive(span)
	case "timeout":
		v.Timeout(span)
	case "atLeastOne":
		v.AtLeastOne(number)
	case "percent":
		v.Percent(number)
	case "percentage":
		v.Percentage(decimal)
	case "port":
		if number != nil {
			v.Port(*number)
		}
	default:
		if text, ok := field.Interface().(*string); ok && text != nil {
			v.OneOf(*text, strings.Split(f.Check, "|")...)
		}
	}
	for _, f := range faults {
		d.Faultf(n.Line, "%s", f.Reason)
	}
}
