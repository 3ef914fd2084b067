package peers

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/nearside-mesh/nearside/gossip/engine"
)

// Machine identifies the machine on which an agent runs. Unknown values are empty. It is saved with
// the state of the pool, so a copy of the state is noticed, and never sent to peers.
type Machine struct {
	ID   string `json:"machineId,omitempty"` // a hash, because the machine ID is confidential
	Host string `json:"hostName,omitempty"`
	Boot string `json:"bootId,omitempty"`
}

// ReadMachine returns the present machine.
func ReadMachine() Machine {
	var m Machine
	if b, err := os.ReadFile("/etc/machine-id"); err == nil {
		m.ID = hashMachineID(string(b))
	}
	if b, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil {
		m.Boot = strings.TrimSpace(string(b))
	}
	m.Host, _ = os.Hostname() // "" on failure: unknown
	return m
}

var machineID = regexp.MustCompile("^[0-9a-f]{32}$")

// hashMachineID returns a hash of a machine ID, or "" if it is not initialized.
func hashMachineID(text string) string {
	if text = strings.TrimSpace(text); !machineID.MatchString(text) || strings.Trim(text, "0") == "" {
		return ""
	}
	h := sha256.Sum256([]byte("nearside machine " + text))
	return hex.EncodeToString(h[:16])
}

// CopiedFrom compares the machine that was saved with the state of the pool with the present one.
// It returns the value to save, and the reason why the state is a copy from another machine, as a
// clause. The reason is "" if there is no evidence of a copy; then only two live processes with one
// ID prove it. A missing or unreadable value is no evidence.
func CopiedFrom(saved []byte, m Machine) (value []byte, reason string) {
	value, _ = json.Marshal(m) // strings always have a JSON form
	var was Machine
	if json.Unmarshal(saved, &was) != nil {
		return value, ""
	}
	differ := func(a, b string) bool { return a != "" && b != "" && a != b }
	switch {
	case differ(was.ID, m.ID):
		reason = fmt.Sprintf("the state directory was copied from another machine, %s", hostText(was))
	case (was.ID == "" || m.ID == "") && differ(was.Host, m.Host) && differ(was.Boot, m.Boot):
		reason = fmt.Sprintf("the state directory was copied from %s: both the host name and the boot ID differ",
			hostText(was))
	}
	return value, reason
}

// hostText returns the name of a machine for messages.
func hostText(m Machine) string {
	if m.Host == "" {
		return "of unknown name"
	}
	return fmt.Sprintf("host %q", m.Host)
}

// machineOp returns the operation that saves a machine, without a value, and the saved value.
func machineOp(saved []engine.Op) (op engine.Op, was []byte) {
	op = engine.Op{Bucket: "meta", Key: "machine"}
	for _, x := range saved {
		if x.Bucket == op.Bucket && x.Key == op.Key {
			was = x.Value
		}
	}
	return op, was
}
