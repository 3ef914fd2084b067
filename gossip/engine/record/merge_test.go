package record

import (
	"bytes"
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// history draws records of one key as nodes write them: each is derived from an earlier one or from
// none.
func history(t *rapid.T) []*Record {
	key := Key{Kind: "Kind", Mesh: "mesh", Name: "name"}
	var all []*Record
	for i := range rapid.IntRange(1, 14).Draw(t, "records") {
		var parent *Record
		if p := rapid.IntRange(-1, i-1).Draw(t, "parent"); p >= 0 {
			parent = all[p]
		}
		hlc := HLC(rapid.IntRange(1, 6).Draw(t, "clock"))
		if parent != nil {
			hlc = max(hlc, parent.HLC+1)
		}
		w := Writer{byte(rapid.IntRange(1, 3).Draw(t, "writer"))}
		deleted := rapid.IntRange(0, 4).Draw(t, "deleted") == 0
		var body []byte
		if !deleted {
			body = []byte(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "body"))
		}
		r, err := successor(key, parent, hlc, w, deleted, "text", body)
		if err != nil {
			t.Fatal(err)
		}
		if rapid.Bool().Draw(t, "signed") {
			s := *r
			s.Signature = []byte{byte(i)}
			if r, err = s.Seal(nil); err != nil {
				t.Fatal(err)
			}
		}
		all = append(all, r)
	}
	return all
}

func win(a, b *Record) *Record {
	w, _, _ := Merge(a, b)
	return w
}

func same(a, b *Record) bool { return bytes.Equal(a.raw, b.raw) }

func TestMergeIsOrderFree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := history(t)
		pick := func(label string) *Record { return rapid.SampledFrom(all).Draw(t, label) }
		a, b, c := pick("a"), pick("b"), pick("c")
		if !same(win(a, b), win(b, a)) {
			t.Error("merge is not commutative")
		}
		if !same(win(win(a, b), c), win(a, win(b, c))) {
			t.Error("merge is not associative")
		}
		if !same(win(a, a), a) || win(a, nil) != a || win(nil, a) != a {
			t.Error("merge is not idempotent")
		}
		_, _, ab := Merge(a, b)
		_, _, ba := Merge(b, a)
		if ab != ba {
			t.Errorf("the relation depends on the order: %v, %v", ab, ba)
		}
	})
}

// TestMergeFindsConflicts checks that a version is superseded if the writer of the winner knew it,
// concurrent if not, and undecided if it is older than the lineage reaches.
func TestMergeFindsConflicts(t *testing.T) {
	key := Key{Kind: "Kind", Mesh: "mesh", Name: "name"}
	write := func(parent *Record, hlc HLC, w byte, body string) *Record {
		r, err := successor(key, parent, hlc, Writer{w}, false, "text", []byte(body))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	chain := []*Record{write(nil, 100, 1, "0")}
	for i := 1; i <= 12; i++ {
		chain = append(chain, write(chain[i-1], HLC(100+10*i), 1, fmt.Sprint(i)))
	}
	last := chain[12]
	for i, r := range chain[:12] {
		want := Superseded
		if i < 4 {
			want = Undecided
		}
		if w, l, rel := Merge(r, last); w != last || l != r || rel != want {
			t.Errorf("version %d beside version 12: %v, want %v", i, rel, want)
		}
	}
	other := write(chain[2], 215, 2, "other")
	if w, l, rel := Merge(other, last); w != last || l != other || rel != Concurrent {
		t.Errorf("an edit on the other side of a cut is %v", rel)
	}
	equal := write(chain[2], 216, 2, "12")
	if _, _, rel := Merge(equal, last); rel != Superseded {
		t.Errorf("an edit with the same content is %v", rel)
	}
	tomb, err := successor(key, chain[2], 300, Writer{2}, true, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	if w, l, rel := Merge(last, tomb); w != tomb || l != last || rel != Concurrent {
		t.Errorf("an edit unknown to a later deletion is %v", rel)
	}
}

func TestNextIsAfterWhatWasSeen(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parent := HLC(rapid.Uint64Range(0, 1<<62).Draw(t, "parent"))
		now := HLC(rapid.Uint64Range(0, 1<<58-1).Draw(t, "now")).Time()
		era := uint8(rapid.IntRange(0, 63).Draw(t, "era"))
		n, err := Next(now, era, parent)
		last := parent.Date() == dateMask && parent.Era() >= era
		if (err != nil) != last || err == nil && (n <= parent || n.Era() != max(era, parent.Era()) ||
			n.Era() > parent.Era() && n.Time() != now || n.Date() < Wall(now)) {
			t.Errorf("Next(%v, %d, %d) = %d, %v", now, era, parent, n, err)
		}
	})
}

// successor returns a version with the given clock.
func successor(key Key, parent *Record, hlc HLC, w Writer, deleted bool, mediaType string,
	body []byte) (*Record, error) {
	return Record{Key: key, HLC: hlc, Writer: w, Deleted: deleted, MediaType: mediaType, Body: body}.After(parent, nil)
}
