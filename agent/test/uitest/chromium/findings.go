package chromium

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"image"
	"image/png"
	"strings"
)

// TooWide returns the elements that let the page scroll sideways, and nothing if it does not.
func (p *Page) TooWide() []string {
	p.t.Helper()
	var wide []string
	p.Eval(`(() => {
		const most = document.documentElement.clientWidth;
		if (document.documentElement.scrollWidth <= most) return [];
		return [...document.querySelectorAll("body *")]
			.filter(e => e.checkVisibility() && e.getBoundingClientRect().right > most + 1)
			.map(e => e.tagName + "." + (e.getAttribute("class") ?? "") + " " + Math.round(e.getBoundingClientRect().right))
			.slice(0, 8).concat("the document is " + document.documentElement.scrollWidth + " wide");
	})()`, &wide)
	return wide
}

// Focus says what [Page.Keyboard] has found.
type Focus struct {
	Stops  int      // number of controls that Tab has reached
	Want   int      // number of controls that it should reach
	Missed []string // controls that it does not reach
	Unseen []string // controls that look the same with and without the focus, or are outside of the window
	Trap   bool     // Tab never leaves the last control
}

// look is one stop of Tab.
type look struct {
	End, Stuck, Inside, New bool
	What                    string
	X, Y, Width, Height     float64
}

// Keyboard walks through the page with at most so many presses of Tab. Of each kind of control, it
// compares the pixels of the first one with and without the focus. If the page has more controls
// than presses, Missed is empty.
func (p *Page) Keyboard(most int) Focus {
	p.t.Helper()
	p.Eval(`(() => {
		document.activeElement?.blur();
		scrollTo(0, 0);
		const sheet = new CSSStyleSheet(); // a caret and selected text are no focus ring
		sheet.replaceSync("* { caret-color: transparent !important } ::selection { color: inherit; background: none }");
		document.adoptedStyleSheets = [sheet];
		const u = window.uitest = {seen: new Set(), kinds: new Set(), ends: 0, last: null};
		u.tell = e => e.tagName.toLowerCase() + (e.id ? "#" + e.id : "") + " " +
			(e.getAttribute("aria-label") ?? e.textContent ?? "").trim().slice(0, 40);
		u.kind = e => [e, e.parentElement, e.parentElement?.parentElement].map(x => x && [x.tagName, x.getAttribute("class"),
			x === e && x.type].join(".")).join(" in ");
		u.look = () => {
			const e = document.activeElement, out = {};
			if (!e || e === document.body) return {End: u.ends++ > 0, What: ""}; // Tab starts where the last focus was
			if (u.seen.has(e)) return {End: true, Stuck: e === u.last, What: u.tell(e)};
			u.seen.add(u.last = e);
			const r = e.getBoundingClientRect(), kind = u.kind(e);
			const inside = r.width > 0 && r.bottom > 0 && r.top < innerHeight && r.right > 0 && r.left < innerWidth;
			const fresh = !u.kinds.has(kind);
			u.kinds.add(kind);
			return {End: false, Inside: inside, New: fresh, What: u.tell(e), X: Math.max(0, r.left - 8) + scrollX,
				Y: Math.max(0, r.top - 8) + scrollY, Width: Math.min(r.width + 16, innerWidth), Height: Math.min(r.height + 16, 200)};
		};
	})()`, nil)
	var found Focus
	for range most {
		p.Press("Tab")
		var at look
		p.Eval(`window.uitest.look()`, &at)
		found.Trap = at.Stuck
		if at.End {
			break
		}
		switch {
		case at.What == "":
		case !at.Inside:
			found.Unseen = append(found.Unseen, at.What+" is outside of the window")
		case at.New && !p.marked(at):
			found.Unseen = append(found.Unseen, at.What)
		}
	}
	var rest Focus
	p.Eval(fmt.Sprintf(`(() => {
		const u = window.uitest;
		document.adoptedStyleSheets = [];
		const visible = e => e.checkVisibility({visibilityProperty: true}) && !e.closest("[inert]");
		const all = [...document.querySelectorAll(
			"a[href], button, input, select, textarea, summary, [tabindex], [contenteditable]")]
			.filter(e => e.tabIndex >= 0 && !e.disabled && visible(e) && e.type !== "hidden");
		const groups = new Set();
		const want = all.filter(e => { if (e.type !== "radio") return true;
			const first = !groups.has(e.name); groups.add(e.name); return first });
		const missed = want.length > %d ? [] : all.filter(e => !u.seen.has(e) && e.type !== "radio").map(u.tell);
		return {Missed: missed.slice(0, 8), Stops: u.seen.size, Want: want.length};
	})()`, most), &rest)
	rest.Unseen, rest.Trap = found.Unseen, found.Trap
	return rest
}

// marked reports whether the focused element looks different without the focus.
func (p *Page) marked(at look) bool {
	p.t.Helper()
	with := p.pixels(at)
	p.Eval(`(() => { const u = window.uitest; u.at = [scrollX, scrollY]; u.focused = document.activeElement; u.focused.blur();
		scrollTo(...u.at) })()`, nil)
	without := p.pixels(at)
	p.Eval(`window.uitest.focused.focus({preventScroll: true})`, nil)
	if with.Bounds() != without.Bounds() {
		return true
	}
	different := 0
	for y := range with.Bounds().Dy() {
		for x := range with.Bounds().Dx() {
			a, b := with.At(x, y), without.At(x, y)
			r1, g1, b1, _ := a.RGBA()
			r2, g2, b2, _ := b.RGBA()
			if max(apart(r1, r2), apart(g1, g2), apart(b1, b2)) > 30<<8 {
				different++
			}
		}
	}
	return different >= 16
}

func apart(a, b uint32) uint32 { return max(a, b) - min(a, b) }

// pixels returns what the page paints around a control.
func (p *Page) pixels(at look) image.Image {
	p.t.Helper()
	var r struct{ Data string }
	p.b.must(p.t, p.session, "Page.captureScreenshot", map[string]any{"format": "png", "optimizeForSpeed": true,
		"clip": map[string]any{"x": at.X, "y": at.Y, "width": at.Width, "height": at.Height, "scale": 1}}, &r)
	data, err := base64.StdEncoding.DecodeString(r.Data)
	check(p.t, err)
	picture, err := png.Decode(bytes.NewReader(data))
	check(p.t, err)
	return picture
}

// String describes the faults, and is empty if there are none.
func (f Focus) String() string {
	var out []string
	if len(f.Missed) > 0 {
		out = append(out, fmt.Sprintf("Tab stops %d times, and never at %q", f.Stops, f.Missed))
	}
	if len(f.Unseen) > 0 {
		out = append(out, fmt.Sprintf("the focus is not visible: %q", f.Unseen[:min(8, len(f.Unseen))]))
	}
	if f.Trap {
		out = append(out, "Tab does not leave a control")
	}
	return strings.Join(out, "; ")
}
