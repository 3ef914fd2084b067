package faultinjection

import (
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/common/fault/v3"
	faultv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"

	"github.com/nearside-mesh/nearside/agent/draft"
	"github.com/nearside-mesh/nearside/agent/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// Conf is the faults of one group of clients. Each has its own chance; a request can meet several.
type Conf struct {
	HTTP *[]Fault `json:"http,omitempty"` // replaces the list of weaker policies, also when it is empty
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

// MaxFaults bounds the faults of one group of clients: each is a filter that every request passes.
const MaxFaults = 100

// Validate checks each fault.
func (c *Conf) Validate(v *resource.Validator) {
	if c.HTTP == nil {
		return // says nothing, which takes nothing away from weaker policies
	}
	if v = v.Field("http"); toolkit.AtMost(v, len(*c.HTTP), MaxFaults, "faults") {
		for i := range *c.HTTP {
			(*c.HTTP)[i].Check(v.Index(i), false)
		}
	}
}

// Check checks the fault. With small, mega and giga may also be written small, as FaultInjection allows.
func (f *Fault) Check(v *resource.Validator, small bool) {
	if *f == (Fault{}) {
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
		if _, reason := readBandwidth(b.Limit, small); reason != "" {
			v.Field("limit").Faultf("%s", reason)
		}
		validateShare(v.Field("percentage"), b.Percentage)
	}
}

// Filter makes the filter of the fault for the requests of some clients.
func (f *Fault) Filter(clients []*routev3.HeaderMatcher) draft.Extension {
	m := &faultv3.HTTPFault{Headers: clients}
	if a := f.Abort; a != nil && a.HTTPStatus != nil {
		m.Abort = &faultv3.FaultAbort{ErrorType: &faultv3.FaultAbort_HttpStatus{HttpStatus: *a.HTTPStatus}, Percentage: share(a.Percentage)}
	}
	if d := f.Delay; d != nil && d.Value != nil {
		m.Delay = &commonv3.FaultDelay{
			FaultDelaySecifier: &commonv3.FaultDelay_FixedDelay{FixedDelay: toolkit.Duration(d.Value)},
			Percentage:         share(d.Percentage),
		}
	}
	if b := f.ResponseBandwidth; b != nil {
		kbps, _ := readBandwidth(b.Limit, true) // was validated
		m.ResponseRateLimit = &commonv3.FaultRateLimit{
			LimitType:  &commonv3.FaultRateLimit_FixedLimit_{FixedLimit: &commonv3.FaultRateLimit_FixedLimit{LimitKbps: kbps}},
			Percentage: share(b.Percentage),
		}
	}
	return draft.Extension{Name: nameFault, Message: m}
}
