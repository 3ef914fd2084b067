package engine

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// beforeShards returns the lines of a file in testdata/before-shards, and its second section. The
// last build before shards wrote these files.
func beforeShards(t *testing.T, name string) (lines [][]string, rest string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "before-shards", name))
	if err != nil {
		t.Fatal(err)
	}
	first, rest, _ := strings.Cut(string(b), "end\n")
	for l := range strings.Lines(first) {
		lines = append(lines, strings.Split(strings.TrimSuffix(l, "\n"), " "))
	}
	return lines, rest
}

func unpack(t *testing.T, s string) []byte {
	t.Helper()
	b, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// listing describes the state of an engine like the files in testdata/before-shards.
func listing(e *Engine) string {
	var b strings.Builder
	for _, slot := range sortedSlots(e.entries) {
		en := e.entries[slot]
		if r := en.record; r != nil {
			fmt.Fprintf(&b, "record %v %s writer %x lineage %d deleted %v media %q body %x\n", r.Key, r.ID(), r.Writer,
				len(r.Lineage), r.Deleted, r.MediaType, HashBody(r.Body))
		}
		if m := en.manifest; m != nil {
			fmt.Fprintf(&b, "node %s %q order %d leaving %v forgotten %v\n", m.Node, m.Name, m.Order, m.Leaving, m.Forgotten)
			for _, x := range e.Items(m) {
				fmt.Fprintf(&b, "item %v %q\n", x.Key, x.Body)
			}
		}
	}
	for _, c := range e.Conflicts() {
		fmt.Fprintf(&b, "conflict %v %s %v seen %d\n", c.Record.Key, c.Record.ID(), c.Relation, c.Seen.UnixMilli())
	}
	for _, r := range e.Limbo() {
		fmt.Fprintf(&b, "limbo %v %s\n", r.Key, r.ID())
	}
	fmt.Fprintf(&b, "root %016x%016x\n", e.Root()[0], e.Root()[1])
	return b.String()
}

// TestStateBeforeShards checks that an engine loads the state that the last build before shards
// saved.
func TestStateBeforeShards(t *testing.T) {
	lines, want := beforeShards(t, "state.txt")
	var saved []Op
	for _, l := range lines {
		saved = append(saved, Op{Bucket: l[0], Key: string(unpack(t, l[1])), Value: unpack(t, l[2])})
	}
	e, _ := New(Config{Self: NodeID{0, 0, 1}, Member: "0-2", Name: "node", Cluster: "here",
		Random: func(int) int { return 0 }}, at(simStart.Add(time.Minute)), saved)
	if got := listing(e); got != want || e.Root() != rebuilt(e) {
		t.Errorf("got %s\nwant %s", got, want)
	}
	if st := e.Stats(); st.Epoch <= 1800000000 || st.Agreed.Before(simStart) || st.Counters["damaged"] > 0 {
		t.Errorf("%+v", st)
	}
}

// TestStreamBeforeShards checks that an engine that receives the messages of nodes without shards
// gets the state that the earlier build got.
func TestStreamBeforeShards(t *testing.T) {
	lines, want := beforeShards(t, "stream.txt")
	e, _ := New(Config{Self: NodeID{0, 1, 1}, Member: "1-1", Name: "node", Cluster: "here",
		Random: func(int) int { return 0 }}, at(simStart), nil)
	for i := range 4 {
		e.Step(at(simStart), PeerUp{Member: fmt.Sprint(i, "-1"), Node: NodeID{0, byte(i), 1}, Features: 0})
	}
	for _, l := range lines {
		ms, err := strconv.Atoi(l[0])
		if err != nil {
			t.Fatal(err)
		}
		now := simStart.Add(time.Duration(ms) * time.Millisecond)
		frame := unpack(t, l[2])
		if _, err := decodeMessage(frame); err != nil {
			t.Errorf("at %s ms: %v", l[0], err)
		}
		e.Step(at(now), Received{frame})
	}
	if c := e.Conflicts(); len(c) != 1 { // the earlier build did not receive the version that lost
		t.Errorf("conflicts: %v", c)
	}
	e.conflicts = conflicts{}
	if got := listing(e); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	for what := range e.Stats().Counters {
		if strings.HasPrefix(what, "refused") {
			t.Errorf("%s: %d", what, e.Stats().Counters[what])
		}
	}
}

func TestMessagesBeforeShards(t *testing.T) {
	lines, _ := beforeShards(t, "messages.txt")
	for _, l := range lines {
		m, err := decodeMessage(unpack(t, l[1]))
		if err != nil || string(m.encode()) != string(unpack(t, l[1])) {
			t.Errorf("%s: decoding and encoding changed the message: %v", l[0], err)
		}
	}
	if len(lines) != 8 {
		t.Errorf("%d messages", len(lines))
	}
}

// oldFields returns the fields of an encoded value that the last build before shards knows, and
// fails if that build would refuse the value.
func oldFields(t *testing.T, b []byte, known protowire.Number,
	repeats ...protowire.Number) (out map[protowire.Number][][]byte) {
	t.Helper()
	out = map[protowire.Number][][]byte{}
	var last protowire.Number
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 || num < last || typ != protowire.VarintType && typ != protowire.Fixed64Type && typ != protowire.BytesType {
			t.Fatalf("field %d of type %d after field %d", num, typ, last)
		}
		repeated := false
		for _, r := range append(repeats, messageShard) {
			repeated = repeated || num == r
		}
		if num == last && !repeated {
			t.Fatalf("field %d occurs twice", num)
		}
		last, b = num, b[n:]
		size := protowire.ConsumeFieldValue(num, typ, b)
		if size < 0 {
			t.Fatalf("field %d is truncated", num)
		}
		value := b[:size]
		if typ == protowire.BytesType {
			value, _ = protowire.ConsumeBytes(b)
		}
		if b = b[size:]; num <= known {
			out[num] = append(out[num], value)
		}
	}
	return out
}

// Numbers of fields of envelopes, records, and manifests that builds before shards know.
const (
	envelopeContent   = 1
	envelopeSignature = 2
	recordKind        = 1
	recordName        = 3
	recordHLC         = 4
	recordBody        = 9
	manifestNode      = 1
	manifestOrder     = 3
	manifestEntry     = 6
)

// TestMessagesForEarlierBuilds checks that builds before shards can read what nodes with few items
// send: only fields with higher numbers are new.
func TestMessagesForEarlierBuilds(t *testing.T) {
	for _, signed := range []bool{false, true} {
		t.Run(fmt.Sprint("signed=", signed), func(t *testing.T) { testMessagesForEarlierBuilds(t, signed) })
	}
}

func testMessagesForEarlierBuilds(t *testing.T, signed bool) {
	s := newSim(t, 1, 3, Limits{})
	s.cluster = "here"
	if signed {
		s.sign()
	}
	records, manifests, kinds := 0, 0, map[protowire.Number]int{}
	s.posted = func(x Send) {
		m := oldFields(t, x.Data[1:], messageBody, messageLeaves, messageRecord, messageManifest, messageBody)
		for k := range m {
			kinds[k]++
		}
		if x.Data[0] != 1 || len(m[messageFrom]) != 1 || len(x.Data) > 1<<20 {
			t.Fatalf("message %x", x.Data)
		}
		for _, r := range m[messageRecord] {
			records++
			c := oldFields(t, oldFields(t, r, envelopeSignature)[envelopeContent][0], recordBody)
			if len(c[recordKind]) != 1 || len(c[recordName]) != 1 || len(c[recordHLC]) != 1 || len(r) > 64<<10 {
				t.Fatalf("record %x", r)
			}
		}
		for _, x := range m[messageManifest] {
			manifests++
			c := oldFields(t, oldFields(t, x, envelopeSignature)[envelopeContent][0], manifestEntry, manifestEntry)
			if len(c[manifestNode]) != 1 || len(c[manifestOrder]) != 1 || len(c[manifestEntry]) > 1000 || len(x) > 64<<10 {
				t.Fatalf("manifest %x", x)
			}
			if d, err := DecodeManifest(x); err != nil || d.Shards != 1 || len(c[manifestEntry]) != len(d.Entries) {
				t.Fatalf("manifest %+v, %v", d, err)
			}
		}
	}
	for _, n := range s.nodes[:2] {
		s.start(n)
	}
	s.join()
	for i := range 40 {
		s.change(s.nodes[i%2],
			Put{Key: Key{Kind: "K", Mesh: "m", Name: fmt.Sprint(i)}, Body: []byte(strings.Repeat("x", 100*i)), Author: "a"})
	}
	s.publish(0, ownItems(100, "body"))
	s.publish(1, ownItems(3, "body"))
	s.step(s.nodes[0], Own{Owner: NodeID{0xd1}, Items: ownItems(300, "directory")})
	s.run(5 * time.Second)
	s.start(s.nodes[2])
	s.run(20 * time.Second)
	if n := s.nodes[2].engine; n.Root() != s.nodes[0].engine.Root() || len(n.Directories()) != 1 {
		t.Error("the nodes do not agree")
	}
	for k := protowire.Number(messageFrom); k <= messageBody; k++ {
		if kinds[k] == 0 && k != messageStream {
			t.Errorf("no message has field %d", k)
		}
	}
	if records < 40 || manifests < 2 {
		t.Errorf("%d records and %d manifests", records, manifests)
	}
}
