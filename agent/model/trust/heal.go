package trust

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/nearside-mesh/nearside/agent/base/strict"
	"github.com/nearside-mesh/nearside/gossip/engine/heal"
)

// Heal begins an era of the pool. It is the body of a record of the kind [KindHeal], whose name is
// the era with two digits.
type Heal struct {
	Era     int       `json:"era"`
	At      time.Time `json:"at"`
	Evicted []ID      `json:"evicted,omitempty"` // nodes and keys
	Kinds   []string  `json:"kinds,omitempty"`   // the kinds that versions of earlier eras may have; empty: all
}

// HealName returns the name of the record of an era.
func HealName(era int) string { return fmt.Sprintf("%02d", era) }

// HealOf returns the body for a statement.
func HealOf(s heal.Statement) *Heal {
	h := &Heal{Era: int(s.Era), At: s.At.UTC(), Kinds: s.Kinds}
	for _, id := range s.Evicted {
		h.Evicted = append(h.Evicted, ID(id))
	}
	return h
}

// DecodeHeal decodes the record with a name, and checks it.
func DecodeHeal(name string, body []byte) (s heal.Statement, err error) {
	h := &Heal{}
	root, faults := decode(body, h)
	era, _ := strconv.Atoi(name)
	switch {
	case len(faults) > 0:
	case h.Era < 1 || h.Era > heal.MaxEra:
		faults = strict.Faults{{Field: "era", Reason: fmt.Sprintf("is %d; 1 to %d are allowed", h.Era, heal.MaxEra)}}
	case h.Era != era || HealName(era) != name:
		faults = strict.Faults{{Field: "era", Reason: fmt.Sprintf("is %d, but the record has the name %s", h.Era, name)}}
	}
	if err := located(root, faults); err != nil {
		return s, err
	}
	s = heal.Statement{Era: uint8(h.Era), At: h.At, Kinds: h.Kinds}
	for _, id := range h.Evicted {
		s.Evicted = append(s.Evicted, heal.ID(id))
	}
	return s, s.Validate()
}

// Encode returns the body of the record.
func (h *Heal) Encode() ([]byte, error) {
	var b bytes.Buffer
	err := json.NewEncoder(&b).Encode(h)
	return b.Bytes(), err
}
