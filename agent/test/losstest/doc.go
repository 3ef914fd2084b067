// Package losstest tests pools whose nodes lose files, have older copies of them, or lose power
// while they migrate the files of an earlier release.
package losstest
