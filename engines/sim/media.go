package sim

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"image"
	"image/color"
	"image/png"
	"math"
	"math/rand/v2"
	"net/http"
	"strconv"
)

const (
	maxPictures = 10
	defaultSide = 64   // pixels of a picture
	maxSide     = 1024 // pixels
	sampleRate  = 8000 // of speech, samples a second
	letterTime  = sampleRate / 50
	maxLetters  = 4096 // as OpenAI's own
)

// pictureOrder is a request for pictures.
type pictureOrder struct {
	Prompt string `json:"prompt"`
	N      *int   `json:"n"`
	Size   string `json:"size"`
	Format string `json:"response_format"`
}

// draw makes pictures that depend on the prompt alone.
func (s *Server) draw(w http.ResponseWriter, r *http.Request) {
	var order pictureOrder
	if readJSON(w, r, &order) {
		s.deliver(w, r, order)
	}
}

// redraw makes them of a form. What is in the picture that comes with it is not looked at.
func (s *Server) redraw(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, bodyCap)
	if err := r.ParseMultipartForm(bodyCap); err != nil {
		fail(w, http.StatusBadRequest, "invalid_request_error", err.Error())
		return
	}
	defer func() { _ = r.MultipartForm.RemoveAll() }()
	if r.MultipartForm.File["image"] == nil {
		fail(w, http.StatusBadRequest, "invalid_request_error", "\"image\" is missing")
		return
	}
	order := pictureOrder{Prompt: r.FormValue("prompt"), Size: r.FormValue("size"), Format: r.FormValue("response_format")}
	if text := r.FormValue("n"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			fail(w, http.StatusBadRequest, "invalid_request_error", "\"n\" is no number")
			return
		}
		order.N = &n
	}
	s.deliver(w, r, order)
}

// deliver answers with pictures, or by default, as many engines do, with links to itself.
func (s *Server) deliver(w http.ResponseWriter, r *http.Request, order pictureOrder) {
	n, width, height := 1, defaultSide, defaultSide
	if order.N != nil {
		n = *order.N
	}
	if order.Size != "" && order.Size != "auto" {
		if _, err := fmt.Sscanf(order.Size, "%dx%d", &width, &height); err != nil || width < 1 || height < 1 || width > maxSide || height > maxSide {
			fail(w, http.StatusBadRequest, "invalid_request_error", "\"size\" is not WIDTHxHEIGHT of up to 1024")
			return
		}
	}
	if n < 1 || n > maxPictures || order.Prompt == "" {
		fail(w, http.StatusBadRequest, "invalid_request_error", "\"prompt\" is empty, or \"n\" not 1 to 10")
		return
	}
	data := []any{}
	for i := range n {
		raw := picture(fmt.Sprint(order.Prompt, i), width, height)
		one := map[string]any{"url": "http://" + r.Host + "/pictures/" + s.name("picture")}
		if order.Format == "b64_json" {
			one = map[string]any{"b64_json": base64.StdEncoding.EncodeToString(raw)}
		}
		data = append(data, one)
	}
	reply(w, map[string]any{"created": s.cfg.Now().Unix(), "data": data})
}

// picture is a PNG of random stripes.
func picture(seed string, width, height int) []byte {
	h := fnv.New64a()
	_, _ = h.Write([]byte(seed))
	random := rand.New(rand.NewPCG(h.Sum64(), 1))
	img := image.NewRGBA(image.Rect(0, 0, width, height))
	for y := range height {
		c := color.RGBA{uint8(random.Uint32()), uint8(random.Uint32()), uint8(random.Uint32()), 255}
		for x := range width {
			img.SetRGBA(x, y, c)
		}
	}
	var out bytes.Buffer
	_ = png.Encode(&out, img) // into memory: it cannot fail
	return out.Bytes()
}

// speak answers with a tone for each letter.
func (s *Server) speak(w http.ResponseWriter, r *http.Request) {
	var order struct {
		Input  string `json:"input"`
		Format string `json:"response_format"`
	}
	if !readJSON(w, r, &order) {
		return
	}
	letters := []rune(order.Input)
	switch {
	case len(letters) == 0 || len(letters) > maxLetters:
		fail(w, http.StatusBadRequest, "invalid_request_error", "\"input\" has 1 to 4096 letters")
		return
	case order.Format != "" && order.Format != "wav":
		fail(w, http.StatusBadRequest, "invalid_request_error", "\"response_format\" can be wav alone")
		return
	}
	w.Header().Set("Content-Type", "audio/wav")
	_, _ = w.Write(tones(letters)) // the client may have left
}

// tones is a WAV file of one channel with 16 bits a sample.
func tones(letters []rune) []byte {
	size := uint32(2 * letterTime * len(letters))
	out := append([]byte("RIFF"), binary.LittleEndian.AppendUint32(nil, 36+size)...)
	out = append(out, "WAVEfmt "...)
	for _, field := range []any{uint32(16), uint16(1), uint16(1), uint32(sampleRate), uint32(2 * sampleRate), uint16(2), uint16(16)} {
		out, _ = binary.Append(out, binary.LittleEndian, field) // of fixed size: it cannot fail
	}
	out = append(out, "data"...)
	out = binary.LittleEndian.AppendUint32(out, size)
	for _, letter := range letters {
		pitch := 200 + 20*float64(letter%50)
		for n := range letterTime {
			out = binary.LittleEndian.AppendUint16(out, uint16(int16(8000*math.Sin(2*math.Pi*pitch*float64(n)/sampleRate))))
		}
	}
	return out
}
