package explain

import (
	"bytes"
	"encoding/json"

	"github.com/nearside-mesh/nearside/agent/compute/policy"
)

// httpMatches lists the matches of the routes of a kind by hash, as used in the matchers of other
// rules.
func httpMatches(k *policy.KindRules) []HTTPMatch {
	var out []HTTPMatch
	add := func(r *policy.Rule) {
		named, ok := r.Conf.(policy.RouteConf)
		if !ok {
			return
		}
		var conf struct {
			Rules []struct {
				Matches json.RawMessage `json:"matches"`
			} `json:"rules"`
		}
		if json.Unmarshal(confOf(r), &conf) != nil {
			return
		}
		for i, name := range named.RouteNames() {
			if i < len(conf.Rules) && len(bytes.TrimSpace(conf.Rules[i].Matches)) > 0 {
				out = append(out, HTTPMatch{Hash: name, Match: conf.Rules[i].Matches})
			}
		}
	}
	for _, r := range k.To {
		add(r)
	}
	for _, r := range k.ToResources {
		add(&r.Rule)
	}
	return out
}
