package engine

// Limits of keys.
const (
	raiseRate  = 0.1 // marks of this node per second that make it publish its items again
	raiseBurst = 5
	markAhead  = 24 * 60 * 60 // seconds that the epoch of a mark may be ahead of the clock
)

// keyed reports whether an ID is the fingerprint of a key, so manifests of the node must be signed.
func (e *Engine) keyed(n NodeID) bool {
	if n == e.cfg.Self && e.cfg.Signer != nil {
		return true
	}
	for _, p := range e.staged[owner{ID: n}] {
		if p.manifest.Signed {
			return true
		}
	}
	return e.signs(n)
}

// dropUnsigned drops the unsigned manifests of a node whose ID is the fingerprint of a key: others
// have forged them.
func (e *Engine) dropUnsigned(n NodeID) {
	o := owner{ID: n}
	for _, p := range e.staged[o] {
		if !p.manifest.Signed {
			e.dropPending(p)
		}
	}
	if s := e.sets[o]; s != nil && !s.first().Signed {
		e.count("dropped: unsigned manifest")
		e.dropOwner(o)
	}
}

// unsignedOnly reports whether the manifests of a node that are in force or wait have no signature.
func (e *Engine) unsignedOnly(n NodeID) bool {
	o := owner{ID: n}
	if s := e.sets[o]; s != nil && !s.first().Signed {
		return true
	}
	for _, p := range e.staged[o] {
		if !p.manifest.Signed {
			return true
		}
	}
	return false
}

// authentic reports whether a manifest of a peer may replace others of its owner, and refuses it
// otherwise. The peer that sent an unsigned manifest of a node with a key receives the signed one.
func (e *Engine) authentic(x *Manifest, from string) bool {
	if err := x.Verify(); err != nil {
		e.distrust(x.Head(), Refusal{Node: x.Node, Detail: err.Error()}, whySignature)
		return false
	}
	why := ""
	switch {
	case x.Directory:
	case !x.Signed && e.keyed(x.Node):
		why = whyUnsigned
		e.sendSet(from, owner{ID: x.Node})
	case x.Forgotten && e.keyed(x.Node) && e.live.Up(x.Node):
		why = whyAlive
	case x.Forgotten && started(x) > e.seconds()+markAhead:
		why = whyFuture // the node could not replace the mark
	case x.Signed && !x.Forgotten:
		e.dropUnsigned(x.Node)
	}
	if why != "" {
		e.distrust(x.Head(), Refusal{Node: x.Node, Detail: why}, why)
		return false
	}
	if why = e.usurps(x); why == "" && e.cfg.Policy != nil {
		why = e.cfg.Policy.Manifest(x)
	}
	if why != "" {
		e.distrust(x.Head(), Refusal{Node: x.Node, Detail: why}, whyPolicy)
	}
	return why == ""
}

// sendSet sends the signed manifests of an owner to a peer.
func (e *Engine) sendSet(to string, o owner) {
	s := e.sets[o]
	if s == nil || !s.first().Signed || e.peers[to] == nil {
		return
	}
	q := &message{From: to, Stream: true}
	for i := range s.shards {
		q.Want = append(q.Want, o.Slot(i))
	}
	e.answer(q)
}

// seconds returns the time of the pool in seconds since 1970.
func (e *Engine) seconds() uint64 { return uint64(max(e.poolTime().Unix(), 0)) }
