package faultinjection

import (
	"encoding/json"

	"github.com/nearside-mesh/nearside/agent/resource"
)

// Conf is the faults of one group of clients. Each has its own chance; a request can meet several.
type Conf struct {
	HTTP *Faults `json:"http,omitempty"` // replaces the list of weaker policies, also when it is empty
}

// Faults is a list of faults. In JSON an empty one is [], so that it is not taken for one that is not given.
type Faults []Fault

// MarshalJSON writes the list.
func (f Faults) MarshalJSON() ([]byte, error) {
	if len(f) == 0 {
		return []byte("[]"), nil
	}
	return json.Marshal([]Fault(f))
}

// LegacyConf is what one FaultInjection does.
type LegacyConf struct {
	Fault
}

// Fault is what happens to a share of the requests.
type Fault struct {
	Abort             *Abort     `json:"abort,omitempty"`
	Delay             *Delay     `json:"delay,omitempty"`
	ResponseBandwidth *Bandwidth `json:"responseBandwidth,omitempty"`
}

// Abort answers in the place of the workload.
type Abort struct {
	HTTPStatus *uint32           `json:"httpStatus,omitempty"`
	Percentage *resource.Decimal `json:"percentage,omitempty"`
}

// Delay lets the request wait.
type Delay struct {
	Value      *resource.Duration `json:"value,omitempty"`
	Percentage *resource.Decimal  `json:"percentage,omitempty"`
}

// Bandwidth slows the response down.
type Bandwidth struct {
	Limit      string            `json:"limit,omitempty"` // "10kbps", "10 Mbps"
	Percentage *resource.Decimal `json:"percentage,omitempty"`
}

// maxFaults bounds the faults of one group of clients: each is a filter that every request passes.
const maxFaults = 100

// Validate checks each fault.
func (c *Conf) Validate(v *resource.Validator) {
	if c.HTTP == nil {
		return // says nothing, which takes nothing away from weaker policies
	}
	v = v.Field("http")
	if n := len(*c.HTTP); n > maxFaults {
		v.Faultf("%d faults are given, at most %d are allowed", n, maxFaults)
		return
	}
	for i := range *c.HTTP {
		(*c.HTTP)[i].validate(v.Index(i), readBandwidth)
	}
}

// Validate checks the fault.
func (c *LegacyConf) Validate(v *resource.Validator) { c.validate(v, readLegacyBandwidth) }

func (f *Fault) validate(v *resource.Validator, bandwidth func(string) (uint64, string)) {
	if f.Abort == nil && f.Delay == nil && f.ResponseBandwidth == nil {
		v.Faultf("the fault does nothing: give abort, delay, responseBandwidth or several of them")
	}
	if a := f.Abort; a != nil {
		v := v.Field("abort")
		switch at := v.Field("httpStatus"); {
		case a.HTTPStatus == nil:
			at.Faultf("the status is missing: give one of 200 to 599")
		case *a.HTTPStatus < 200 || *a.HTTPStatus > 599:
			at.Faultf("%d is not a status that Envoy answers with: give one of 200 to 599", *a.HTTPStatus)
		}
		validateShare(v.Field("percentage"), a.Percentage)
	}
	if d := f.Delay; d != nil {
		v := v.Field("delay")
		switch at := v.Field("value"); {
		case d.Value == nil:
			at.Faultf(`the delay is missing: give a duration like "5s"`)
		case d.Value.Duration <= 0:
			at.Faultf("%s is no delay: give more than 0s", d.Value.Duration)
		}
		validateShare(v.Field("percentage"), d.Percentage)
	}
	if b := f.ResponseBandwidth; b != nil {
		v := v.Field("responseBandwidth")
		if _, reason := bandwidth(b.Limit); reason != "" {
			v.Field("limit").Faultf("%s", reason)
		}
		validateShare(v.Field("percentage"), b.Percentage)
	}
}
