package engine

// Policy decides which records and manifests may be in force. The engine calls it in Step and
// Prepare, with entries whose signatures are valid or absent. Answers may change only before a
// Reconsider event.
type Policy interface {
	// Record returns "", or the reason why a record may not be in force.
	Record(*Record) string
	// Manifest does so for a manifest of another node, or of a directory. A reason that starts with
	// "name: " is listed under ReasonName, all others under ReasonTrust.
	Manifest(*Manifest) string
}

// Reconsider means that the answers of the policy may have changed. The engine judges all entries
// again: it withholds those in force that are no longer permitted, puts withheld ones into force
// that are permitted again, and requests the versions that it refused before.
type Reconsider struct{}

func (Reconsider) event() {}

// objection returns why a record may not be in force, or "".
func (e *Engine) objection(r *Record) string {
	if e.cfg.Policy == nil {
		return ""
	}
	return e.cfg.Policy.Record(r)
}

// distrust records a version that the policy or its signature excludes. The detail is the reason.
func (e *Engine) distrust(h Head, r Refusal, why string) {
	e.forged.Take(e.now, 1)
	e.refuse(h, refusal{Refusal: r}, why)
}

// Entries without a valid and permitted signature that this node verifies. Any process with the
// gossip key can send them in the name of every member. Above it, unsolicited entries of all peers
// are dropped; announced ones are still requested.
const (
	forgedRate  = 100 // per second
	forgedBurst = 2000
)

// flooded reports whether an unsolicited entry is dropped without a verification.
func (e *Engine) flooded(m *message) bool {
	if m.asked || !e.forged.Empty(e.now) {
		return false
	}
	e.count("refused: too many forged entries")
	return true
}

// excludedBefore reports whether the policy excluded a record until now. However old it is, it was
// not deleted.
func (e *Engine) excludedBefore(r *Record) bool {
	old := e.refused[r.Head()]
	return old != nil && old.byPolicy
}

// refuseByPolicy records a record that the policy excludes.
func (e *Engine) refuseByPolicy(r *Record, why string) {
	e.distrust(r.Head(), Refusal{Key: r.Key, Writer: r.Writer, Version: r.ID(), Detail: why}, whyPolicy)
}
