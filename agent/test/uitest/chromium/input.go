package chromium

import (
	"strings"
)

// keys are the keys without a character: their codes, and the text that they enter.
var keys = map[string]struct {
	code int
	text string
}{
	"Tab": {9, ""}, "Enter": {13, "\r"}, "Escape": {27, ""}, "Space": {32, " "}, "Home": {36, ""}, "End": {35, ""},
	"ArrowLeft": {37, ""}, "ArrowUp": {38, ""}, "ArrowRight": {39, ""}, "ArrowDown": {40, ""},
	"Backspace": {8, ""}, "Delete": {46, ""}, "PageDown": {34, ""}, "PageUp": {33, ""},
}

// modifiers are the bits of the protocol.
var modifiers = map[string]int{"Alt": 1, "Control": 2, "Meta": 4, "Shift": 8}

// Press presses keys, one after the other: "Tab", "Shift+Tab", "Control+a", "x".
func (p *Page) Press(names ...string) {
	p.t.Helper()
	for _, name := range names {
		bits := 0
		for {
			modifier, rest, ok := strings.Cut(name, "+")
			if !ok || modifiers[modifier] == 0 {
				break
			}
			bits |= modifiers[modifier]
			name = rest
		}
		key := map[string]any{"key": name, "code": name, "modifiers": bits}
		text := ""
		if k, ok := keys[name]; ok {
			key["windowsVirtualKeyCode"] = k.code
			text = k.text
			if name == "Space" {
				key["key"] = " "
			}
		} else {
			upper := strings.ToUpper(name)
			key["windowsVirtualKeyCode"] = int(upper[0])
			key["code"] = "Key" + upper
			text = name
		}
		if bits&^modifiers["Shift"] != 0 {
			text = ""
			if name == "a" && bits == modifiers["Control"] {
				key["commands"] = []string{"selectAll"}
			}
		}
		down := map[string]any{"type": "rawKeyDown"}
		if text != "" {
			down = map[string]any{"type": "keyDown", "text": text}
		}
		up := map[string]any{"type": "keyUp"}
		for k, v := range key {
			down[k], up[k] = v, v
		}
		delete(up, "commands")
		p.do("Input.dispatchKeyEvent", down)
		p.do("Input.dispatchKeyEvent", up)
	}
}

// Type enters text into the focused control, like a paste.
func (p *Page) Type(text string) {
	p.t.Helper()
	p.do("Input.insertText", map[string]any{"text": text})
}

// Click clicks the first visible element that matches a selector. It waits until there is one.
func (p *Page) Click(selector string) {
	p.t.Helper()
	visible := `[...document.querySelectorAll(` + quote(selector) + `)].find(e => e.checkVisibility() && !e.disabled)`
	p.Until(visible)
	var at struct{ X, Y float64 }
	p.Eval(`(() => { const e = `+visible+`; e.scrollIntoView({block: "center", behavior: "instant"});
		const r = e.getBoundingClientRect(); return {X: r.x + r.width / 2, Y: r.y + r.height / 2} })()`, &at)
	for _, kind := range []string{"mousePressed", "mouseReleased"} {
		p.do("Input.dispatchMouseEvent", map[string]any{"type": kind, "x": at.X, "y": at.Y, "button": "left",
			"clickCount": 1})
	}
}

// Focused describes the focused element: its tag, role, name, and position.
func (p *Page) Focused() string {
	p.t.Helper()
	var out string
	p.Eval(`(() => { const e = document.activeElement;
		if (!e || e === document.body) return "body";
		const r = e.getBoundingClientRect();
		return [e.tagName.toLowerCase() + (e.id ? "#" + e.id : ""), e.getAttribute("role") ?? "", e.getAttribute("href") ?? "",
			(e.getAttribute("aria-label") ?? e.innerText ?? e.name ?? "").trim().slice(0, 60), Math.round(r.x) + "," + Math.round(r.y)]
			.join(" ") })()`, &out)
	return out
}
