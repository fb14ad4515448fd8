// Package keys owns API keys: their text form, making and revoking them, and
// the check of each request. A key's secret exists only in the text that is
// shown once; the mesh stores its SHA-256.
package keys
