package house

import (
	"fmt"
	"html"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// plotted finds the tables of docs/performance.md that are also shown as plots: the picture, with
// its description and its file, and the table after it.
var plotted = regexp.MustCompile(`(?m)^!\[(.+)\]\((performance-[a-z]+\.svg)\)\n\n((?:\|.*\n)+)`)

// figure is a number of a cell with its unit. Of a range or a bound, it is the
// larger number.
var figure = regexp.MustCompile(`^(?:below |[0-9.,]+–)?([0-9][0-9.,]*) ?(µs|ms|s|MiB)?$`)

// bar is one figure of a plot.
type bar struct {
	class, text string
	value       float64
}

// TestPlots compares the plots of docs/performance.md with the tables that they show. UPDATE_GOLDEN
// draws them again.
func TestPlots(t *testing.T) {
	const dir = "../../../docs/"
	text, err := os.ReadFile(dir + "performance.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]bool{}
	for _, m := range plotted.FindAllStringSubmatch(string(text), -1) {
		name, want := m[2], plot(m[1], m[3])
		shown[name] = true
		if os.Getenv("UPDATE_GOLDEN") != "" {
			if err := os.WriteFile(dir+name, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(dir + name); err != nil || string(got) != want {
			t.Errorf("docs/%s does not show its table in docs/performance.md (%v): run the test with UPDATE_GOLDEN=1", name, err)
		}
	}
	files, err := filepath.Glob(dir + "performance-*.svg")
	if err != nil || len(shown) < 3 {
		t.Errorf("%d plots, %v", len(shown), err)
	}
	for _, f := range files {
		if !shown[filepath.Base(f)] {
			t.Errorf("%s: docs/performance.md has no table for it", f)
		}
	}
}

// cellsOf returns the cells of a row of a table.
func cellsOf(row string) []string {
	cells := strings.Split(strings.Trim(row, "|"), "|")
	for i := range cells {
		cells[i] = strings.TrimSpace(cells[i])
	}
	return cells
}

// plot returns an SVG with a group of bars for each row of a table. Columns without figures, and
// those from the ratio on, are left out. The scale is logarithmic if the figures differ by more
// than 100 times.
func plot(about, table string) string {
	rows := strings.Split(strings.TrimSpace(table), "\n")
	series := cellsOf(rows[0])[1:]
	var groups []string
	var bars [][]bar
	used := map[int]bool{}
	least, most := math.MaxFloat64, 0.0
	for _, row := range rows[2:] {
		cells := cellsOf(row)
		var group []bar
		for i, c := range cells[1:] {
			m := figure.FindStringSubmatch(c)
			if ratio := slices.Index(series, "ratio"); m == nil || ratio >= 0 && i >= ratio {
				continue
			}
			v, err := strconv.ParseFloat(strings.ReplaceAll(m[1], ",", ""), 64)
			if err != nil || v <= 0 {
				continue
			}
			used[i] = true
			least, most = min(least, v), max(most, v)
			class := fmt.Sprintf("s%d", i)
			if series[i] == "goal" {
				class = "goal"
			}
			group = append(group, bar{class, c, v})
		}
		label := cells[0]
		if figure.MatchString(label) {
			label += " " + cellsOf(rows[0])[0] // a number says nothing without its noun
		}
		groups, bars = append(groups, label), append(bars, group)
	}
	return draw(about, series, used, groups, bars, func(v float64) float64 {
		if most/least > 100 {
			return 20 + 400*math.Log(v/least)/math.Log(most/least)
		}
		return 420 * v / most
	})
}

// draw writes the SVG of a plot. length returns the length of a bar.
func draw(about string, series []string, used map[int]bool, groups []string, bars [][]bar,
	length func(float64) float64) string {
	var body, said strings.Builder
	names := map[string]string{} // by class
	x := 12
	for i, s := range series {
		if !used[i] {
			continue
		}
		class := fmt.Sprintf("s%d", i)
		if s == "goal" {
			class = "goal"
		}
		fmt.Fprintf(&body, "  <rect class=%q x=\"%d\" y=\"14\" width=\"13\" height=\"13\"/>\n", class, x)
		fmt.Fprintf(&body, "  <text x=\"%d\" y=\"25\">%s</text>\n", x+19, html.EscapeString(s))
		names[class] = s
		x += 40 + 8*len([]rune(s))
	}
	y := 46
	for i, g := range groups {
		fmt.Fprintf(&body, "  <text x=\"12\" y=\"%d\">%s</text>\n", y+12, html.EscapeString(g))
		for _, b := range bars[i] {
			fmt.Fprintf(&said, "%s, %s: %s. ", g, names[b.class], b.text)
			fmt.Fprintf(&body, "  <rect class=%q x=\"330\" y=\"%d\" width=\"%.0f\" height=\"13\" rx=\"2\"/>\n", b.class, y,
				length(b.value))
			fmt.Fprintf(&body, "  <text class=\"dim\" x=\"%.0f\" y=\"%d\">%s</text>\n", 336+length(b.value), y+11,
				html.EscapeString(b.text))
			y += 15
		}
		y += 14
	}
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 860 %d" role="img" aria-labelledby="title about"
  font-family="system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif" font-size="14">
  <title id="title">%s</title>
  <desc id="about">%s</desc>
  <style>
    text { fill: #1f2328 }
    .dim { fill: #57606a; font-size: 12px }
    .s0 { fill: #0969da } .s1 { fill: #8250df } .s2 { fill: #bf8700 } .s3 { fill: #afb8c1 } .goal { fill: #1a7f37 }
    @media (prefers-color-scheme: dark) {
      text { fill: #e6edf3 }
      .dim { fill: #8b949e }
      .s0 { fill: #388bfd } .s1 { fill: #a371f7 } .s2 { fill: #d29922 } .s3 { fill: #6e7681 } .goal { fill: #3fb950 }
    }
  </style>
%s</svg>
`, y, html.EscapeString(about), html.EscapeString(strings.TrimSpace(said.String())), body.String())
}
