package draft

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestMentions: names are found as bytes.Contains finds them, one after the other.
func TestMentions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOfN(rapid.SampledFrom([]rune("ab-:1")), 0, 24, -1)
		names := rapid.SliceOfNDistinct(text, 0, 20, rapid.ID).Draw(t, "names")
		var bodies [][]byte
		for _, s := range rapid.SliceOfN(rapid.StringOfN(rapid.SampledFrom([]rune("ab-:1")), 0, 80, -1), 0, 4).Draw(t,
			"bodies") {
			bodies = append(bodies, []byte(s))
		}
		if len(names) > 0 && rapid.Bool().Draw(t, "one is in it") {
			bodies = append(bodies, []byte("x"+names[len(names)-1]))
		}
		for i, is := range mentions(bodies, names) {
			if want := slices.ContainsFunc(bodies, func(b []byte) bool {
				return bytes.Contains(b, []byte(names[i]))
			}); is != want {
				t.Fatalf("%q in %q: %v", names[i], bodies, is)
			}
		}
		for i, body := range bodies {
			r := NewResource(fmt.Sprint(i), body)
			want := slices.ContainsFunc(names, func(name string) bool { return bytes.Contains(body, []byte(name)) })
			if got := Mentioning([]*Resource{r}, names); (len(got) == 1) != want {
				t.Fatalf("%q names one of %q: %v", body, names, !want)
			}
		}
	})
}

// TestRetained: what is remembered of the last time makes no difference, and lists that come out
// the same are the same.
func TestRetained(t *testing.T) {
	names := []string{"a", "b", "ab", "long-name-1", "long-name-2"}
	rapid.Check(t, func(t *rapid.T) {
		list := func(what string) []*Resource {
			var out []*Resource
			for _, name := range names {
				if rapid.Bool().Draw(t, what+" has "+name) {
					out = append(out, NewResource(name,
						[]byte(strings.Join(rapid.SliceOfN(rapid.SampledFrom(names), 0, 3).Draw(t, "refers to"), " "))))
				}
			}
			slices.SortFunc(out, ByName)
			return out
		}
		var current, had Lists
		var gone []*Resource
		var kept Retained
		for range rapid.IntRange(1, 8).Draw(t, "steps") {
			switch rank := rapid.IntRange(0, NumTypes-1).Draw(t, "rank"); rapid.IntRange(0, 2).Draw(t, "what changes") {
			case 0:
				current[rank] = list("the config")
			case 1:
				had[rank] = list("the client")
			case 2:
				gone = list("what drains")
			}
			got, want := kept.Retain(&current, gone, &had), new(Retained).Retain(&current, gone, &had)
			for rank := range got {
				if !slices.Equal(got[rank], want[rank]) {
					t.Fatalf("rank %d: %v, from nothing %v", rank, got[rank], want[rank])
				}
			}
			for rank, again := range kept.Retain(&current, gone, &had) {
				if !SameList(again, got[rank]) {
					t.Fatalf("rank %d is another list", rank)
				}
			}
		}
	})
}

// BenchmarkRetain: a thousand listeners drain, and their clusters are gone from the config; an
// acknowledgement of endpoints comes.
func BenchmarkRetain(b *testing.B) {
	const n = 1000
	var had, current Lists
	for i := range n {
		name := fmt.Sprintf("service-%d_namespace_svc_8080", i)
		had[RankListener] = append(had[RankListener], NewResource(fmt.Sprintf("outbound:10.0.%d.%d:80", i/256, i%256),
			[]byte(strings.Repeat("some bytes of a listener ", 30)+name)))
		had[RankCluster] = append(had[RankCluster], NewResource(name, []byte(strings.Repeat("cluster ", 40)+name)))
		had[RankEndpoint] = append(had[RankEndpoint], NewResource(name, []byte("endpoints")))
	}
	for rank := range had {
		slices.SortFunc(had[rank], ByName)
	}
	b.Run("first", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if out := new(Retained).Retain(&current, had[RankListener], &had); len(out[RankCluster]) != n ||
				len(out[RankEndpoint]) != n {
				b.Fatal("something is missing")
			}
		}
	})
	b.Run("again", func(b *testing.B) {
		b.ReportAllocs()
		var kept Retained
		for b.Loop() {
			had[RankEndpoint] = slices.Clone(had[RankEndpoint])
			if out := kept.Retain(&current, had[RankListener], &had); len(out[RankEndpoint]) != n {
				b.Fatal("something is missing")
			}
		}
	})
}
