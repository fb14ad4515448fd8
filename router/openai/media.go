package openai

// medium is what a part of a message is made of besides text.
type medium int

const (
	noMedia medium = iota
	mediaImage
	mediaAudio
	mediaFile
)

// longestMedia is the longest kind of part that is looked for, with quotes.
const longestMedia = len(`"input_image"`)

// mediaOf reads a part's type, raw.
func mediaOf(kind []byte) medium {
	switch string(kind) {
	case `"image_url"`, `"input_image"`, `"image"`:
		return mediaImage
	case `"input_audio"`, `"audio_url"`, `"audio"`:
		return mediaAudio
	case `"file"`, `"input_file"`, `"document"`, `"video_url"`:
		return mediaFile
	}
	return noMedia
}

// countMedia counts the parts of a conversation that are no text, where the
// scan saw that there may be some. A tool's arguments may say "image" too, so
// that only the parts of messages and of tools' results count.
func (r *Request) countMedia(list []byte) {
	for m := elementsIn(list); m.next(); {
		r.parts(member(m.value, "content"), true)
		r.parts(member(m.value, "output"), false) // of a call in Responses
	}
}

func (r *Request) parts(list []byte, results bool) {
	for p := elementsIn(list); p.next(); {
		kind := member(p.value, "type")
		switch mediaOf(kind) {
		case mediaImage:
			r.Images++
		case mediaAudio:
			r.Audio++
		case mediaFile:
			r.Files++
		default:
			if results && string(kind) == `"tool_result"` {
				r.parts(member(p.value, "content"), false)
			}
			continue
		}
		r.mediaBytes += len(p.value)
	}
}
