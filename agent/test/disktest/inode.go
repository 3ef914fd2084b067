package disktest

import "math/rand/v2"

const (
	sectorSize = 512 // a disk writes a sector whole or not at all
	pageSize   = 4096
)

// version is the content of a sector after a write.
type version struct {
	number int // of the operation
	data   []byte
}

// sector is a part of a file.
type sector struct {
	durable []byte    // nil: zeros
	later   []version // content that a disk may have instead
	dirty   bool      // the last content will be durable after a sync
}

// latest returns the content that the program sees.
func (s *sector) latest() []byte {
	if n := len(s.later); n > 0 {
		return s.later[n-1].data
	}
	return s.durable
}

// inode is a file without its name.
type inode struct {
	sectors map[int64]*sector
	size    int64 // durable
	sizes   []sized
	current int64 // size that the program sees
}

// sized is a size after an operation.
type sized struct {
	number int
	size   int64
}

func newInode() *inode { return &inode{sectors: map[int64]*sector{}} }

// sector returns a sector, with a new one if it was not written yet.
func (f *inode) sector(i int64) *sector {
	s := f.sectors[i]
	if s == nil {
		s = &sector{}
		f.sectors[i] = s
	}
	return s
}

func (f *inode) write(number int, offset int64, data []byte) {
	for len(data) > 0 {
		s, from := f.sector(offset/sectorSize), offset%sectorSize
		now := make([]byte, sectorSize)
		copy(now, s.latest())
		n := copy(now[from:], data)
		s.later, s.dirty = append(s.later, version{number, now}), true
		data, offset = data[n:], offset+int64(n)
	}
	if offset > f.current {
		f.resize(number, offset)
	}
}

func (f *inode) resize(number int, size int64) {
	for i, s := range f.sectors { // A shorter file has zeros beyond its end.
		if i*sectorSize >= size && s.latest() != nil {
			s.later, s.dirty = append(s.later, version{number, nil}), true
		}
	}
	f.current = size
	f.sizes = append(f.sizes, sized{number, size})
}

// sync makes the content durable. If it fails, the kernel forgets that the content is not on disk,
// so a later sync does not write it either. It does not forget the size.
func (f *inode) sync(failed bool) {
	for _, s := range f.sectors {
		if s.dirty && !failed {
			s.durable, s.later = s.latest(), nil
		}
		s.dirty = false
	}
	if !failed {
		f.size, f.sizes = f.current, nil
	}
}

// moment chooses the operation up to which a power loss retains the writes to a part of a file.
type moment func(first int64) int

// content returns what the disk may contain of the file.
func (f *inode) content(r *rand.Rand, last int) []byte {
	chosen := f.moments(r, last)
	size := f.size
	whole := chosen(-1)
	for _, s := range f.sizes {
		if s.number <= whole {
			size = s.size
		}
	}
	out := make([]byte, size)
	for i := int64(0); i*sectorSize < size; i++ {
		s, until := f.sectors[i], chosen(i)
		if s == nil {
			continue
		}
		data := s.durable
		for _, v := range s.later {
			if v.number <= until {
				data = v.data
			}
		}
		copy(out[i*sectorSize:], data)
	}
	return out
}

// moments returns one of the ways in which a disk loses writes.
func (f *inode) moments(r *rand.Rand, last int) moment {
	random := func() int { return r.IntN(last+2) - 1 }
	perUnit := func(sectors int64) moment {
		seen := map[int64]int{}
		return func(first int64) int {
			unit := (first + sectors) / sectors // 0 is the size
			if _, ok := seen[unit]; !ok {
				seen[unit] = random()
			}
			return seen[unit]
		}
	}
	switch cut := random(); r.IntN(6) {
	case 0: // all writes are lost
		return func(int64) int { return -1 }
	case 1: // none
		return func(int64) int { return last }
	case 2: // the last ones
		return func(int64) int { return cut }
	case 3: // any pages
		return perUnit(pageSize / sectorSize)
	case 4: // any sectors
		return perUnit(1)
	default: // all but those of one page
		lost := r.Int64N(max(f.current/pageSize, 1))
		return func(first int64) int {
			if first >= 0 && first*sectorSize/pageSize == lost {
				return -1
			}
			return last
		}
	}
}
