"""What an unmodified OpenAI client does in a day, printed as one JSON object."""

import json
import sys

from openai import APIStatusError, OpenAI

base_url, api_key, model = sys.argv[1:4]
client = OpenAI(base_url=base_url, api_key=api_key, max_retries=0, timeout=120)
messages = [{"role": "user", "content": "Name the capital of France."}]
out = {"models": sorted(m.id for m in client.models.list())}

whole = client.chat.completions.create(model=model, messages=messages, max_tokens=24, temperature=0)
out["chat"] = whole.choices[0].message.content
out["chat_tokens"] = whole.usage.completion_tokens

stream = client.chat.completions.create(
    model=model, messages=messages, max_tokens=24, temperature=0,
    stream=True, stream_options={"include_usage": True},
)
parts, usage, finish = [], None, None
for chunk in stream:
    if chunk.usage:
        usage = chunk.usage.completion_tokens
    for choice in chunk.choices:
        if choice.delta.content:
            parts.append(choice.delta.content)
        finish = choice.finish_reason or finish
out["stream"] = "".join(parts)
out["stream_parts"] = len(parts)
out["stream_tokens"] = usage
out["stream_finish"] = finish

text = client.completions.create(model=model, prompt="Once upon a time", max_tokens=8, temperature=0)
out["completion"] = text.choices[0].text

vectors = client.embeddings.create(model=model, input=["a cat", "a dog", "a cat"])
out["embeddings"] = [len(d.embedding) for d in vectors.data]
out["embeddings_repeat"] = vectors.data[0].embedding == vectors.data[2].embedding
out["embeddings_differ"] = vectors.data[0].embedding != vectors.data[1].embedding

try:
    client.chat.completions.create(model="no-such-model", messages=messages)
except APIStatusError as e:
    out["unknown_model"] = [type(e).__name__, e.status_code, e.code]
try:
    client.with_options(api_key="llmgw-sk-wrong").models.list()
except APIStatusError as e:
    out["wrong_key"] = [type(e).__name__, e.status_code]

print(json.dumps(out))
