package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
)

// Structure of a bbolt file, as far as necessary to verify that bbolt can use it
// (go.etcd.io/bbolt/internal/common: page.go, meta.go, bucket.go; format version 2, host byte
// order).
const (
	pageHeader   = 16 // id u64, flags u16, count u16, overflow u32
	elementSize  = 16
	metaSize     = 64 // with its checksum
	metaMagic    = 0xED0CDAED
	metaVersion  = 2
	flagBranch   = 0x01
	flagLeaf     = 0x02
	flagMeta     = 0x04
	flagFreelist = 0x10
	flagBucket   = 0x01 // of an element
	noFreelist   = ^uint64(0)
	maxDepth     = 64
)

var order = binary.NativeEndian

// checkPages reads every page in use and verifies that the trees and the list of free pages are
// intact. bbolt trusts its file: with a damaged one it panics, reads beyond the mapping, or
// overwrites pages in use. size is the length of the file in bytes.
func checkPages(r io.ReaderAt, size int64) error {
	m, _, err := newestMeta(r, size)
	if err != nil {
		return err
	}
	if m.pages > m.there {
		return fmt.Errorf("the file has %d bytes, but %d pages of %d bytes are in use", size, m.pages, m.pageSize)
	}
	c := &checker{r: r, meta: m, seen: make([]bool, m.pages)}
	c.seen[0], c.seen[1] = true, true
	if err := c.tree(m.root, nil, nil, 0); err != nil {
		return err
	}
	return c.freelist()
}

type meta struct {
	pageSize, root, freelist, pages, txid uint64
	there                                 uint64 // number of pages in the file
}

// newestMeta returns the meta page that bbolt will use, and whether the other one is valid too. An
// invalid one may have been newer.
func newestMeta(r io.ReaderAt, size int64) (best *meta, both bool, err error) {
	var first error
	valid := 0
	consider := func(offset int64) {
		m, err := readMeta(r, offset)
		if err != nil {
			if first == nil {
				first = err
			}
			return
		}
		valid++
		if best == nil || m.txid > best.txid {
			best = m
		}
	}
	consider(0)
	if best != nil {
		consider(int64(best.pageSize))
	} else {
		for offset := int64(1024); offset <= 1<<24 && offset < size; offset <<= 1 {
			consider(offset)
		}
	}
	if best == nil {
		return nil, false, fmt.Errorf("no valid meta page: %w", first)
	}
	best.there = uint64(size) / best.pageSize
	return best, valid == 2, nil
}

func readMeta(r io.ReaderAt, offset int64) (*meta, error) {
	b := make([]byte, pageHeader+metaSize)
	if _, err := r.ReadAt(b, offset); err != nil {
		return nil, fmt.Errorf("meta page at %d: %w", offset, err)
	}
	b = b[pageHeader:]
	if magic, version := order.Uint32(b), order.Uint32(b[4:]); magic != metaMagic || version != metaVersion {
		return nil, fmt.Errorf("meta page at %d: magic %08x, version %d", offset, magic, version)
	}
	h := fnv.New64a()
	h.Write(b[:metaSize-8])
	if h.Sum64() != order.Uint64(b[metaSize-8:]) {
		return nil, fmt.Errorf("meta page at %d: wrong checksum", offset)
	}
	m := &meta{pageSize: uint64(order.Uint32(b[8:])), root: order.Uint64(b[16:]), freelist: order.Uint64(b[32:]),
		pages: order.Uint64(b[40:]), txid: order.Uint64(b[48:])}
	if m.pageSize < 1024 || m.pageSize > 1<<24 || m.pageSize&(m.pageSize-1) != 0 || m.pages < 3 {
		return nil, fmt.Errorf("meta page at %d: %d pages of %d bytes", offset, m.pages, m.pageSize)
	}
	return m, nil
}

type checker struct {
	r    io.ReaderAt
	meta *meta
	seen []bool // by page id
}

// page reads a page with its overflow and marks it as used.
func (c *checker) page(id uint64) (b []byte, flags uint16, count int, err error) {
	if id < 2 || id >= c.meta.pages {
		return nil, 0, 0, fmt.Errorf("page %d is referenced, but only pages 2 to %d exist", id, c.meta.pages-1)
	}
	head := make([]byte, pageHeader)
	if _, err := c.r.ReadAt(head, int64(id*c.meta.pageSize)); err != nil {
		return nil, 0, 0, fmt.Errorf("page %d: %w", id, err)
	}
	overflow := uint64(order.Uint32(head[12:]))
	if got := order.Uint64(head); got != id || overflow >= c.meta.pages-id {
		return nil, 0, 0, fmt.Errorf("page %d claims to be page %d with %d overflow pages", id, got, overflow)
	}
	for i := id; i <= id+overflow; i++ {
		if c.seen[i] {
			return nil, 0, 0, fmt.Errorf("page %d is used twice", i)
		}
		c.seen[i] = true
	}
	b = make([]byte, (overflow+1)*c.meta.pageSize)
	if _, err := c.r.ReadAt(b, int64(id*c.meta.pageSize)); err != nil {
		return nil, 0, 0, fmt.Errorf("page %d: %w", id, err)
	}
	return b, order.Uint16(b[8:]), int(order.Uint16(b[10:])), nil
}

// tree checks the pages of one bucket below page id. Its keys are in [low, high); nil means
// unbounded.
func (c *checker) tree(id uint64, low, high []byte, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("page %d: the tree is deeper than %d", id, maxDepth)
	}
	b, flags, count, err := c.page(id)
	if err != nil {
		return err
	}
	switch flags {
	case flagLeaf:
		err = c.leaf(b, count, low, high, depth)
	case flagBranch:
		err = c.branch(b, count, low, high, depth)
	default:
		err = fmt.Errorf("flags %#x where a branch or leaf was expected", flags)
	}
	if err != nil {
		return fmt.Errorf("page %d: %w", id, err)
	}
	return nil
}

func (c *checker) branch(b []byte, count int, low, high []byte, depth int) error {
	if count == 0 {
		return errors.New("a branch without children")
	}
	keys := make([][]byte, count)
	for i := range keys {
		e, err := element(b, i, count)
		if err != nil {
			return err
		}
		if keys[i], err = slice(e, uint64(order.Uint32(e)), uint64(order.Uint32(e[4:]))); err != nil {
			return err
		}
	}
	if err := sorted(keys, low, high); err != nil {
		return err
	}
	for i, k := range keys {
		to := high
		if i+1 < count {
			to = keys[i+1]
		}
		if err := c.tree(order.Uint64(b[pageHeader+i*elementSize+8:]), k, to, depth+1); err != nil {
			return err
		}
	}
	return nil
}

func (c *checker) leaf(b []byte, count int, low, high []byte, depth int) error {
	keys := make([][]byte, count)
	for i := range keys {
		key, value, flags, err := leafElement(b, i, count)
		if err != nil {
			return err
		}
		keys[i] = key
		switch flags {
		case 0:
		case flagBucket:
			if err := c.bucket(value, depth); err != nil {
				return fmt.Errorf("bucket %q: %w", keys[i], err)
			}
		default:
			return fmt.Errorf("element %d has flags %#x", i, flags)
		}
	}
	return sorted(keys, low, high)
}

// bucket checks the value of a bucket entry: root page and sequence, and an inline leaf if the root
// is 0.
func (c *checker) bucket(value []byte, depth int) error {
	if len(value) < 16 {
		return fmt.Errorf("%d bytes", len(value))
	}
	if root := order.Uint64(value); root != 0 {
		return c.tree(root, nil, nil, depth+1)
	}
	inline := value[16:]
	if len(inline) < pageHeader || order.Uint16(inline[8:]) != flagLeaf || depth > maxDepth {
		return errors.New("its inline page is not a leaf")
	}
	return c.leaf(inline, int(order.Uint16(inline[10:])), nil, nil, depth+1)
}

// freelist checks that no free page is in use or listed twice, because bbolt would overwrite it.
func (c *checker) freelist() error {
	if c.meta.freelist == noFreelist {
		return errors.New("the list of free pages is missing")
	}
	b, flags, n, err := c.page(c.meta.freelist)
	if err != nil {
		return fmt.Errorf("list of free pages: %w", err)
	}
	ids := b[pageHeader:]
	count := uint64(n)
	if count == 0xFFFF {
		count, ids = order.Uint64(ids), ids[8:]
	}
	if flags != flagFreelist || count > uint64(len(ids)/8) {
		return fmt.Errorf("list of free pages: flags %#x, %d ids in %d bytes", flags, count, len(b))
	}
	for i := range count {
		id := order.Uint64(ids[8*i:])
		if id < 2 || id >= c.meta.pages || c.seen[id] {
			return fmt.Errorf("page %d is listed as free, but is in use, listed twice, or beyond the end", id)
		}
		c.seen[id] = true
	}
	return nil
}

// element returns the page from element i. Positions in an element are relative to it.
func element(page []byte, i, count int) ([]byte, error) {
	if pageHeader+count*elementSize > len(page) {
		return nil, fmt.Errorf("%d elements in %d bytes", count, len(page))
	}
	return page[pageHeader+i*elementSize:], nil
}

// leafElement returns an element of a leaf page.
func leafElement(page []byte, i, count int) (key, value []byte, flags uint32, err error) {
	e, err := element(page, i, count)
	if err != nil {
		return nil, nil, 0, err
	}
	pos, ksize, vsize := uint64(order.Uint32(e[4:])), uint64(order.Uint32(e[8:])), uint64(order.Uint32(e[12:]))
	if key, err = slice(e, pos, ksize); err == nil {
		value, err = slice(e, pos+ksize, vsize)
	}
	return key, value, order.Uint32(e), err
}

func slice(b []byte, from, n uint64) ([]byte, error) {
	if from+n > uint64(len(b)) {
		return nil, fmt.Errorf("%d bytes at %d, of %d", n, from, len(b))
	}
	return b[from : from+n], nil
}

// sorted checks that keys ascend within [low, high) and begin with low if it is set. bbolt finds a
// page in its parent by the first key, and would otherwise write that page twice.
func sorted(keys [][]byte, low, high []byte) error {
	for i, k := range keys {
		switch {
		case len(k) == 0:
			return fmt.Errorf("element %d has no key", i)
		case i > 0 && bytes.Compare(keys[i-1], k) >= 0, i == 0 && low != nil && !bytes.Equal(k, low),
			high != nil && bytes.Compare(k, high) >= 0:
			return fmt.Errorf("element %d with key %q is out of order", i, k)
		}
	}
	return nil
}
