// Package uitest opens the page of the agent in a real Chromium: each view with a small and a large
// mesh, by keyboard, 375 pixels wide, dark, and with axe-core; faults of the agent; and requests of
// other origins. The tests are skipped without a Chromium.
//
// UITEST_PICTURES=DIR writes pictures of all views into an existing directory, for a review.
package uitest
