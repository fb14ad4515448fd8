package responses

// head stands in every event.
type head struct {
	Type     string `json:"type"`
	Sequence int    `json:"sequence_number"`
}

type responseEvent struct {
	head
	Response *document `json:"response"`
}

type itemEvent struct {
	head
	Index int `json:"output_index"`
	Item  any `json:"item"`
}

// place says which part of which item an event is about.
type place struct {
	ItemID  string `json:"item_id"`
	Index   int    `json:"output_index"`
	Content int    `json:"content_index"`
}

type partEvent struct {
	head
	place
	Part any `json:"part"`
}

type deltaEvent struct {
	head
	place
	Delta    string `json:"delta"`
	Logprobs []any  `json:"logprobs"`
}

type textEvent struct {
	head
	place
	Text     string `json:"text"`
	Logprobs []any  `json:"logprobs"`
}

type callEvent struct {
	head
	ItemID    string  `json:"item_id"`
	Index     int     `json:"output_index"`
	Delta     *string `json:"delta,omitempty"`
	Name      *string `json:"name,omitempty"`
	Arguments *string `json:"arguments,omitempty"`
	Input     *string `json:"input,omitempty"`
}
