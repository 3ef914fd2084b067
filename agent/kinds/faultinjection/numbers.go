package faultinjection

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/nearside-mesh/nearside/agent/resource"
)

// unit is the smallest share of requests that Envoy can tell from none, in percent: one in a million.
const unit = 0.0001

func validateShare(v *resource.Validator, percentage *resource.Decimal) {
	if percentage == nil {
		v.Faultf(`the percentage is missing: give a number from 0 to 100, one with a fraction in quotes: "2.5"`)
		return
	}
	v.Percentage(percentage)
	if f := percentage.Float(); f > 0 && f < unit {
		v.Faultf("%s is less than the smallest percentage that Envoy can tell from 0, %v", percentage, unit)
	}
}

// share is a percentage as Envoy takes it, with the smallest denominator that holds it.
func share(percentage *resource.Decimal) *typev3.FractionalPercent {
	if percentage == nil {
		return &typev3.FractionalPercent{}
	}
	switch n := uint32(math.Round(percentage.Float() / unit)); {
	case n%10_000 == 0:
		return &typev3.FractionalPercent{Numerator: n / 10_000}
	case n%100 == 0:
		return &typev3.FractionalPercent{Numerator: n / 100, Denominator: typev3.FractionalPercent_TEN_THOUSAND}
	default:
		return &typev3.FractionalPercent{Numerator: n, Denominator: typev3.FractionalPercent_MILLION}
	}
}

// readBandwidth reads a limit and returns it in kbps, or what is wrong. With small, mega and giga may also be written
// small.
func readBandwidth(s string, small bool) (kbps uint64, reason string) {
	const wanted = `a whole number with the unit kbps, Mbps or Gbps, for example "50kbps"`
	if s == "" {
		return 0, "the limit is missing: give " + wanted
	}
	digits := strings.TrimLeft(s, "0123456789")
	number, unit := s[:len(s)-len(digits)], strings.TrimPrefix(digits, " ")
	factor := map[string]uint64{"kbps": 1, "Mbps": 1_000, "Gbps": 1_000_000, "mbps": 1_000, "gbps": 1_000_000}[unit]
	if factor == 0 || number == "" || !small && (unit[0] == 'm' || unit[0] == 'g') {
		return 0, fmt.Sprintf("%.40q is not a bandwidth: give %s", s, wanted)
	}
	n, err := strconv.ParseUint(number, 10, 32) // so that no unit makes it overflow, here or in Envoy
	switch {
	case err != nil:
		return 0, fmt.Sprintf("%.40q is out of range: at most %d of any unit are allowed", s, uint32(math.MaxUint32))
	case n == 0:
		return 0, fmt.Sprintf("%.40q lets nothing through: give at least 1kbps, or an abort", s)
	}
	return n * factor, ""
}
