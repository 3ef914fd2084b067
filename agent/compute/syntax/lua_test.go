package syntax_test

import (
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/syntax"
)

// TestLuaFault compares the faults of scripts with those of LuaJIT in Envoy 1.36.2.
func TestLuaFault(t *testing.T) {
	for code, fault := range map[string]string{
		"":                             "",
		"x = 1;; y = 2 ; return x, y;": "",
		"function a.b.c:d(e, ...) return ... end":                       "",
		"for i = 1, 2, 3 do break x = 1 end":                            "",
		"for a, b in pairs(t) do repeat local c until c end":            "",
		"goto a ::a:: f'x':y{1, 2; a = 3, [4] = 5,}[1].z = -#t + 0x1p4": "",
		"x = [==[ ]] ]==] .. 'a\\'b' --[[ c\n]] y = é":                  "",
		"if x then elseif y then else end while x do end do end":        "",
		"x = a ^ -b ~= not c and 12ULL .. 1e+5":                         "",
		"x = = 1":                                                       `"=" in line 1 is unexpected`,
		"x = 1\ny z":                                                    `"z" in line 2 is unexpected`,
		"x = 5 5":                                                       `"5" in line 1 is unexpected`,
		"goto a":                                                        `goto "a" has no label`,
		"x = goto":                                                      `"goto" in line 1 is unexpected`,
		"break":                                                         `"break" in line 1 is unexpected`,
		"function f() x = ... end":                                      `"..." in line 1 is unexpected`,
		"function (":                                                    `"(" in line 1 is unexpected`,
		"function f(":                                                   "the script ends too early",
		"function f() return 1 x = 2 end":                               `"x" in line 1 is unexpected`,
		"f() = 1":                                                       `"=" in line 1 is unexpected`,
		"x.y":                                                           "= is missing at the end",
		"x, f() = 1":                                                    `"=" in line 1 is unexpected`,
		"x = {f() = 1}":                                                 `"=" in line 1 is unexpected`,
		"x = 1..2":                                                      `"1..2" in line 1 is not a number`,
		"x = 'a":                                                        "a text in line 1 has no end",
		"x = [[a":                                                       "a text in line 1 has no end",
		"--[[ a":                                                        "a comment in line 1 has no end",
		"do if x then end":                                              "end is missing at the end",
		"end":                                                           `"end" in line 1 is unexpected`,
		"x += 1":                                                        `"+" in line 1 is unexpected`,
		"x = a != b":                                                    `"!" in line 1 is unexpected`,
		"x = " + strings.Repeat("(", 1000):                              "line 1 is nested too deeply",
	} {
		if got := syntax.LuaFault(code); got != fault {
			t.Errorf("%.60q: %q, want %q", code, got, fault)
		}
	}
}

func FuzzLuaFault(f *testing.F) {
	for _, code := range []string{"x = 1", "function f(a, ...) return {1, a = 2}[1]:b'c' end", "goto a ::a:: --[[ b ]]"} {
		f.Add(code)
	}
	f.Fuzz(func(_ *testing.T, code string) { syntax.LuaFault(code) })
}
