package resource

import "github.com/nearside-mesh/nearside/agent/base/strict"

// On returns a registry that decodes the documents of large streams in parallel. each must call do
// for every i in [0, n) on at most the given number of workers, and return after all calls have
// returned; see Each in package workers. Results are the same as without workers.
func (r *Registry) On(workers int, each func(workers, n int, do func(worker, i int)) error) *Registry {
	out := *r
	out.workers, out.each = workers, each
	return &out
}

// fewChunks is the number of documents up to which workers do not pay off.
const fewChunks = 64

// sideBySide decodes the documents of a stream on workers and reports whether it did. It does not
// for a stream near a limit, because the documents before a document count towards the limit; such
// a stream is decoded in sequence.
func (r *Registry) sideBySide(out *stream, data []byte, m mode) bool {
	lim := m.lim
	if r.each == nil || r.workers < 2 || m.stored != nil || len(data) > lim.FileBytes {
		return false
	}
	var chunks []strict.Chunk
	strict.Split(data, func(c strict.Chunk) bool {
		chunks = append(chunks, c)
		return len(chunks) <= lim.Documents
	})
	if len(chunks) < fewChunks || len(chunks) > lim.Documents {
		return false
	}
	types := make([]strict.Types, r.workers)
	found, nodes := make([][]decodedDocument, len(chunks)), make([]int, len(chunks))
	err := r.each(r.workers, len(chunks), func(worker, i int) {
		if types[worker] == nil {
			types[worker] = strict.Types{}
		}
		budget := lim.DocumentNodes()
		chunks[i].Parse(lim, func() int { return budget }, func(doc strict.Document) bool {
			if doc.Root != nil {
				nodes[i] += doc.Root.Size
			}
			found[i] = append(found[i], r.decoded(m, types[worker], doc))
			return nodes[i] < budget
		})
	})
	if err != nil {
		return false
	}
	index, all := 0, 0
	for i := range found {
		all += nodes[i]
		if nodes[i] >= lim.DocumentNodes() || all > lim.Nodes-lim.DocumentNodes() {
			return false
		}
		for _, d := range found[i] {
			index++
			out.add(index, d)
		}
	}
	return index <= lim.Documents
}
