package fetch

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"llmgw/fetch/gguf"
	"llmgw/mesh/catalog"
)

// maxSim bounds the parameter file of the simulated engine.
const maxSim = 64 << 10

// sniff looks at a stream's first bytes, without taking them, for the start
// of a format that we know.
func sniff(r *bufio.Reader) error {
	head, err := r.Peek(len(gguf.Magic))
	if string(head) == gguf.Magic || len(head) > 0 && head[0] == '{' {
		return nil
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return badArchive(err)
	}
	return unknownFormat(fmt.Sprintf("it starts with %q, a GGUF file with %q", head, gguf.Magic))
}

func unknownFormat(detail string) *Error {
	return &Error{
		Kind: KindUnknownFormat, Detail: "the file is not a GGUF: " + detail,
		Hint: "engines here read GGUF files; pick a .gguf file of the model",
	}
}

// describe reads what a stored file is. It refuses a file that cannot be used.
func (s *Store) describe(ref reference, name, digest string) (catalog.Source, error) {
	f, err := s.root.Open(name)
	if err != nil {
		return catalog.Source{}, fmt.Errorf("pull %s: %w", ref.text, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return catalog.Source{}, fmt.Errorf("pull %s: %w", ref.text, err)
	}
	src := catalog.Source{URI: ref.text, Revision: ref.wheel.version, Digest: digest, SizeBytes: info.Size()}
	if err := fill(&src, f); err != nil {
		return catalog.Source{}, ref.named(err)
	}
	return src, nil
}

// fill recognises the format and adds what the file's header tells.
func fill(src *catalog.Source, f *os.File) error {
	head, err := gguf.ReadHeader(f)
	switch {
	case errors.Is(err, gguf.ErrNotGGUF):
		return fillSim(src, f)
	case errors.Is(err, gguf.ErrMalformed), errors.Is(err, gguf.ErrVersion):
		return damaged(err.Error())
	case err != nil:
		return err
	case head.BigEndian:
		return damaged("it is a big-endian GGUF, which engines on this hardware do not read")
	case head.Architecture() == "":
		return damaged("its header names no architecture")
	case src.SizeBytes < head.MinSize:
		return damaged(fmt.Sprintf("its header describes at least %d bytes and it has %d: the end is missing", head.MinSize, src.SizeBytes))
	}
	src.Format = catalog.FormatGGUF
	src.Architecture = head.Architecture()
	src.ContextTrain = head.ContextLength()
	src.KVBytesPerToken = head.KVBytesPerToken(2)
	return nil
}

func damaged(detail string) *Error {
	return &Error{
		Kind: KindBadFile, Detail: "the GGUF file cannot be used: " + detail,
		Hint: "get the file again from where it was made",
	}
}

// fillSim recognises the parameters of the simulated engine: a JSON object
// with the key llmgw_sim.
func fillSim(src *catalog.Source, f *os.File) error {
	if src.SizeBytes > maxSim {
		return unknownFormat("it looks like a text file")
	}
	raw, err := io.ReadAll(io.NewSectionReader(f, 0, maxSim))
	if err != nil {
		return err
	}
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(raw, &keys); err != nil {
		return unknownFormat("nor is it a JSON object")
	}
	if _, ok := keys["llmgw_sim"]; !ok {
		return unknownFormat("nor does it describe a simulated engine (the key llmgw_sim is missing)")
	}
	src.Format = catalog.FormatSim
	return nil
}
