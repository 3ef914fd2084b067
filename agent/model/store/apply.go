package store

// Apply applies the changes of b atomically and in order. It returns one record per op: the current
// resource, or the deleted one with the revision, time, and author of the deletion.
//
// A put of unchanged content changes nothing: it gets no revision and causes no write. IfRevision
// of an op refers to the result of earlier ops in the batch.
//
// Errors: *ConflictError, *NotFoundError, *RevisionError, ErrMoved, *DurabilityError and
// *SealError (for durable batches), ErrClosed, and plain errors for a batch that is malformed or
// cannot be encoded.
func (s *Store) Apply(b Batch) ([]Record, error) {
	if err := b.validate(); err != nil {
		return nil, err
	}
	if b.Durable && s.opt.Path != "" {
		s.mu.Lock()
		p, err := s.plan(b)
		s.mu.Unlock()
		if err != nil || p.empty() {
			return p.records, err // without waiting for the disk
		}
	}
	if b.Source.Kind == SourceAPI {
		s.sealing.Lock()
		defer s.sealing.Unlock()
	}
	var records []Record
	var committed func()
	var overtaken bool
	var err error
	if b.Durable && s.opt.Path != "" {
		records, committed, overtaken, err = s.applyDurably(b)
	} else {
		records, committed, err = s.applyNow(b)
	}
	if committed != nil {
		committed()
	}
	if overtaken {
		// The transaction has revisions that changes in between replaced. The next one also has what
		// the pool notes about a version that was replaced.
		_ = s.Flush() // Health has the error
	}
	return records, err
}

// applyNow applies a batch that is visible before it is on disk.
func (s *Store) applyNow(b Batch) (records []Record, committed func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, err := s.prepare(b)
	if err != nil || p.empty() {
		return p.records, nil, err
	}
	if committed, err = s.seal(p); err != nil {
		return nil, nil, &SealError{Err: err}
	}
	s.appendHistory(p.changes)
	s.swap(p)
	return p.records, committed, nil
}

// prepare plans a batch and encodes its changes. The plan is never nil. The caller holds s.mu.
func (s *Store) prepare(b Batch) (*plan, error) {
	p, err := s.plan(b)
	if err != nil || s.opt.Path == "" {
		return p, err
	}
	if mark := s.state.base; s.revision <= mark && p.revision > mark {
		s.skipRevisions() // the mark does not allow these revisions
		if p, err = s.plan(b); err != nil {
			return p, err
		}
	}
	for i := range p.changes {
		if err := s.encode(&p.changes[i]); err != nil {
			return &plan{}, err
		}
	}
	return p, nil
}

// applyDurably applies a batch that becomes visible only after it is on disk. Meanwhile s.mu is
// free, so that changes of files and Envoys are visible at once. overtaken reports whether there
// were such changes; then the caller must flush.
func (s *Store) applyDurably(b Batch) (records []Record, committed func(), overtaken bool, err error) {
	s.commits.Lock()
	defer s.commits.Unlock()
	refuse := func(err error) ([]Record, func(), bool, error) {
		return nil, nil, overtaken, &DurabilityError{Path: s.opt.Path, Err: err}
	}
	if s.state.err != nil {
		// Only the first failing write leaves a commit behind that may or may not be on disk.
		if err := s.flush(); err != nil {
			return refuse(err)
		}
	}
	if err := s.openFile(); err != nil {
		return refuse(s.degrade(err))
	}
	s.mu.Lock()
	from, merges := s.Snapshot(), s.pool.merges
	p, err := s.prepare(b)
	if err != nil || p.empty() {
		s.mu.Unlock()
		return p.records, nil, false, err
	}
	if committed, err = s.seal(p); err != nil {
		s.mu.Unlock()
		return nil, nil, false, &SealError{Err: err}
	}
	s.unseen = [2]uint64{s.revision, p.revision}
	s.revision = p.revision
	w, err := s.writeSet(p)
	s.mu.Unlock()
	if err == nil {
		err = s.commit(w)
	} else {
		err = s.degrade(err)
	}

	s.mu.Lock()
	s.unseen = [2]uint64{}
	overtaken = s.Snapshot() != from || s.pool.merges != merges
	if err != nil || overtaken {
		s.burn(p)
	}
	switch {
	case err != nil:
		s.report()
		s.mu.Unlock()
		return refuse(err)
	case overtaken:
		// Changes in between are visible with later revisions. The batch gets revisions above them.
		// Its content is on disk, so it can become visible now.
		second := s.sealed(b, p)
		records = p.records
		if p, err = s.prepare(second); err == nil {
			s.appendHistory(p.changes)
		}
		if len(second.Ops) != len(b.Ops) {
			p.records = records // of ops without a change too
		}
	}
	if err == nil {
		s.swap(p)
		if !overtaken {
			s.pool.stored(w.versions) // the transaction has them; another one would delay the next write
		}
	} else {
		committed = nil
	}
	s.mu.Unlock()
	return p.records, committed, overtaken, err
}
