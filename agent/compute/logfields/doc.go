// Package logfields reads named fields from the lines of access logs, and matches them with
// conditions such as "path~^/api/" and "duration>500ms".
//
// [New] compiles the formats that may have written a line. A [Reader] then reads each line once,
// without allocation. Clients control parts of a line, so a value counts only where no client can
// have shifted it:
//
//   - From both ends of a line, values are read up to the first one that may contain the text that
//     follows it.
//   - Between these, a sequence of texts and operators with restricted characters, such as `"
//     %RESPONSE_CODE% %RESPONSE_FLAGS% `, is accepted if the line contains it once. A client that
//     imitates the sequence makes the values of its line unknown, and cannot change them.
//   - Values that clients send (headers, the path) are read between these positions. A client may
//     shift them only into other values that it sends.
//
// All functions are pure. A [Reader] is for one goroutine; other values are safe for concurrent
// use.
package logfields
