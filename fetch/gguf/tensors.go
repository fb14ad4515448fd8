package gguf

import "math/bits"

// block gives the elements and bytes of one block of the tensor types whose
// layout is settled. A tensor of any other type counts as 0 bytes, so that
// MinSize stays a lower bound.
func block(typ uint32) (elements, bytes uint64) {
	switch typ {
	case 0: // F32
		return 1, 4
	case 1, 30: // F16, BF16
		return 1, 2
	case 2, 20: // Q4_0, IQ4_NL
		return 32, 18
	case 3: // Q4_1
		return 32, 20
	case 6: // Q5_0
		return 32, 22
	case 7: // Q5_1
		return 32, 24
	case 8: // Q8_0
		return 32, 34
	case 10: // Q2_K
		return 256, 84
	case 11: // Q3_K
		return 256, 110
	case 12: // Q4_K
		return 256, 144
	case 13: // Q5_K
		return 256, 176
	case 14: // Q6_K
		return 256, 210
	case 23: // IQ4_XS
		return 256, 136
	case 39: // MXFP4
		return 32, 17
	default:
		return 1, 0
	}
}

// tensors reads the list of tensors for the one thing we ask of it: where the
// file must end.
func (s *scanner) tensors(h *Header) error {
	align := h.values["general.alignment"].number()
	if align == 0 {
		align = dflAlignment
	}
	if align > maxAlignment || bits.OnesCount64(align) != 1 {
		return malformed("alignment %d", align)
	}
	var end uint64
	for range h.Tensors {
		e, err := s.tensor()
		if err != nil {
			return err
		}
		end = max(end, e)
	}
	if h.Tensors == 0 {
		h.MinSize = int64(s.read)
		return nil
	}
	start := (s.read + align - 1) / align * align
	h.MinSize = int64(start + end)
	return nil
}

// tensor returns the offset of a tensor's end from the start of the data.
func (s *scanner) tensor() (uint64, error) {
	if _, err := s.text(maxTensorName, 0); err != nil {
		return 0, err
	}
	dims, err := s.u32()
	if err != nil {
		return 0, err
	}
	if dims > maxDims {
		return 0, malformed("a tensor of %d dimensions", dims)
	}
	elements := uint64(1)
	for range dims {
		d, err := s.u64()
		if err != nil {
			return 0, err
		}
		hi, lo := bits.Mul64(elements, d)
		if hi != 0 || lo > maxFileOffset {
			return 0, malformed("a tensor of more than %d elements", uint64(maxFileOffset))
		}
		elements = lo
	}
	typ, err := s.u32()
	if err != nil {
		return 0, err
	}
	offset, err := s.u64()
	if err != nil {
		return 0, err
	}
	if offset > maxFileOffset {
		return 0, malformed("a tensor at offset %d", offset)
	}
	return offset + tensorBytes(typ, elements), nil
}

// tensorBytes is at most maxFileOffset, so sums of two stay in 64 bits.
func tensorBytes(typ uint32, elements uint64) uint64 {
	per, size := block(typ)
	hi, lo := bits.Mul64(elements/per, size)
	if hi != 0 || lo > maxFileOffset {
		return maxFileOffset
	}
	return lo
}
