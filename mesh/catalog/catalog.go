// Package catalog owns the typed documents that the mesh shares (models,
// assignments, settings, members, tokens, API keys, sessions) and the plain types that
// describe them. It is the one mesh package that engines and fetch import: it
// knows rows and their meaning, but no network, no process and no file.
//
// A document is read from its row each time and never cached here, so what a
// reader gets is what the store holds. Writes go through one store
// transaction; what they change is one cell for each setting, so that two
// edits of different settings of one model both survive a merge. A row that cannot be
// read fails nothing but what is asked of it by its key; see UnreadableError.
package catalog
